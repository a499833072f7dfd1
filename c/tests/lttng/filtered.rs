//! The events that filter expressions choose equal those that LTTng-UST chooses by the same
//! expressions.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use usertrace_testing::c_library::succeed;
use usertrace_tests::lttng::events;
use usertrace_tests_preload::Traces;

use crate::build::{COMPILERS, build, build_with_lttng};
use crate::daemon::{Daemon, Session, missing};

/// The event that the program writes 400 times.
const EVENT: &str = "test_filtered:request";

const SOURCE: &[&str] = &["filtered.c"];

/// Expressions that mean the same in both. `docs/reference/expressions.md` lists the differences.
const EXPRESSIONS: [&str; 24] = [
    "n < 10",
    "n >= 0x10 && n <= 020",
    "delta < 0",
    "delta == -3 || delta == 4",
    "-delta > 10",
    "size > 4294967296",
    "size & 0xff == 0",
    "size >> 8 & 7 == 5 || n << 2 == 40",
    "(n ^ status) != 0",
    "~n == -8",
    "port > 390",
    "!status",
    "status == n && delta != 0",
    "path == \"/api/*\"",
    "path != \"*css\" && path != \"--\"",
    "path == \"a\\*b\"",
    "tag == \"/a\" || tag == \"a\\*\"",
    "load > 1.5",
    "load == 0.25 || half >= 1.75",
    "load < n",
    "grid[0] == 2 && grid[1] > grid[2]",
    "n & 2 == 2 && bytes[1] == 7",
    "$ctx.vpid > 1 && $ctx.procname == \"prog*\" && n & 1 == 1",
    "!(n < 100 || (path == \"/*\" && delta > 0)) && load != 2",
];

/// A trial if LTTng is there.
pub(crate) fn with_lttng() -> Trial {
    let missing = missing();
    let name = "filters_choose_the_events_that_lttng_chooses";
    Trial::test(name, move || {
        match missing {
            None => equal(),
            Some(what) => println!("skipped: no {what}"),
        }
        Ok(())
    })
}

/// Requirements: E4, F7
fn equal() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("program");
    build(COMPILERS[0].1, SOURCE, &program);
    let sessions: Vec<_> = (0..)
        .zip(EXPRESSIONS)
        .map(|(n, expression)| Session {
            name: format!("session{n}"),
            filter: Some((EVENT, expression)),
        })
        .collect();
    let daemon = Daemon::with_sessions(&sessions);
    let theirs = daemon.directory().join("program");
    build_with_lttng(COMPILERS[0].1, SOURCE, &theirs);
    succeed(&daemon.run(&theirs));
    let mut wrong = Vec::new();
    for (session, expression) in sessions.iter().zip(EXPRESSIONS) {
        let (ours, theirs) = (of_filter(&program, expression), daemon.events_of(session));
        // An expression that chooses nothing, or everything, shows little.
        if ours != theirs || !(1..400).contains(&ours.len()) {
            wrong.push((expression, ours.len(), theirs.len()));
        }
    }
    assert!(
        wrong.is_empty(),
        "expression, our events, LTTng's: {wrong:?}"
    );
}

/// The events that our filter chooses.
fn of_filter(program: &Path, expression: &str) -> Vec<String> {
    let traces = Traces::new();
    let mut command = Command::new(program);
    let filter = format!("{EVENT} if {expression}");
    traces.of(&mut command).env("USERTRACE_FILTER", filter);
    succeed(&command.output().unwrap());
    traces.wait();
    events(traces.path())
}
