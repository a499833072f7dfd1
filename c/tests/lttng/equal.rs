//! The decoded events equal those of LTTng-UST itself.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use usertrace_testing::c_library::succeed;
use usertrace_tests::lttng::{events, expected};
use usertrace_tests_preload::Traces;

use crate::build::{COMPILERS, build, build_with_lttng};
use crate::daemon::{Daemon, missing};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("arguments_are_not_evaluated_without_a_trace", not_evaluated),
    ("static_program_records_lttng_events", a_static_program),
];

const PROGRAM: &[&str] = &["program.c", "messages.c", "define.c", "probes.c"];

/// A trial for each compiler. Without LTTng-UST, the expected events are those that it wrote once.
pub(crate) fn with_lttng() -> Vec<Trial> {
    let missing = missing();
    let note = missing.map_or_else(String::new, |what| {
        format!(" (LTTng's run is skipped: no {what})")
    });
    let trial = |&(name, compiler): &(&str, &'static [&'static str])| {
        let name = format!("events_equal_those_of_lttng_from_{name}{note}");
        Trial::test(name, move || {
            equal(compiler, missing.is_none());
            Ok(())
        })
    };
    let with_objects = |&(name, compiler): &(&str, &'static [&'static str])| {
        let name = format!("events_of_objects_equal_those_of_lttng_from_{name}{note}");
        Trial::test(name, move || {
            objects(compiler, missing.is_none());
            Ok(())
        })
    };
    let of_cpp = |compiler: &&(&str, &[&str])| compiler.1.contains(&"c++");
    let objects = COMPILERS.iter().filter(of_cpp).map(with_objects);
    COMPILERS.iter().map(trial).chain(objects).collect()
}

/// Requirements: F7
fn equal(compiler: &[&str], has_lttng: bool) {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("program");
    build(compiler, PROGRAM, &program);
    let ours = run(&program, "3\n");
    assert_eq!(ours, expected(compiler.contains(&"c++")));
    if has_lttng {
        let daemon = Daemon::start();
        let program = daemon.directory().join("program");
        build_with_lttng(compiler, PROGRAM, &program);
        assert_eq!(succeed(&daemon.run(&program)), "3\n");
        assert_eq!(ours, daemon.events());
    }
}

/// Runs a program that must print `output`, and returns its events in our trace.
fn run(program: &Path, output: &str) -> Vec<String> {
    let traces = Traces::new();
    let said = traces.of(&mut Command::new(program)).output().unwrap();
    assert_eq!(succeed(&said), output);
    traces.wait();
    events(traces.path())
}

/// Arguments may be objects of C++, which are copied, moved and destroyed as the program has it.
///
/// Requirements: F7
fn objects(compiler: &[&str], has_lttng: bool) {
    const SOURCE: &[&str] = &["objects.cpp"];
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("program");
    build(compiler, SOURCE, &program);
    let ours = run(&program, "1\n");
    let expected = [
        r#"shared = "shared", time = 0, label = "label 0", _text_length = 1, text = "x", flag = 0"#,
        r#"shared = "shared", time = 1e+06, label = "label 1", _text_length = 2, text = "xx", flag = 1"#,
        r#"shared = "none", time = 2e+06, label = "label 2", _text_length = 3, text = "xxx", flag = 0"#,
    ];
    assert_eq!(
        ours,
        expected.map(|fields| format!("(13) test_objects:begin: {{ {fields} }}"))
    );
    if has_lttng {
        let daemon = Daemon::start();
        let program = daemon.directory().join("program");
        build_with_lttng(compiler, SOURCE, &program);
        assert_eq!(succeed(&daemon.run(&program)), "1\n");
        assert_eq!(ours, daemon.events());
    }
}

/// Requirements: F3, F7
fn not_evaluated() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("program");
    build(COMPILERS[0].1, PROGRAM, &program);
    let output = Command::new(&program)
        .env("USERTRACE_BACKEND", "off")
        .output()
        .unwrap();
    assert_eq!(succeed(&output), "0\n");
}

/// Requirements: F7
fn a_static_program() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("program");
    let compiler = [COMPILERS[0].1, &["-static"]].concat();
    build(&compiler, PROGRAM, &program);
    assert_eq!(run(&program, "3\n"), expected(false));
}
