//! Tests of a trace that the kernel's command line started, before the first process ran (F8).
//!
//! The guest is booted with `ltt.boot=early,flight,subbuf_size=8192,subbuf_count=4 rdinit=/first`:
//! its first process is `vm/init/src/bin/first.rs`, which writes ten events before anything is
//! mounted, and then becomes the guest's init.

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::Arguments;
use usertrace_testing::wait;
use usertrace_tests::progress::{self, Case};
use usertrace_tests::reader::Reader;
use usertrace_tests::{control, guest, program};

const TRACE: &str = "early";

fn read(file: &str) -> String {
    let path = Path::new(control::ROOT).join(TRACE).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The consumer files of processes whose id is, or is not, 1.
fn files(of_the_first: bool) -> Vec<std::path::PathBuf> {
    let directory = Path::new(control::ROOT).join(TRACE).join("main");
    std::fs::read_dir(directory)
        .expect("the channel has a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some())
        .filter(|path| (path.file_stem().is_some_and(|pid| pid == "1")) == of_the_first)
        .collect()
}

/// Requirements: F8
fn boot_trace_has_the_requested_settings() {
    let is = [
        "start",
        "main/mode",
        "main/subbuf_size",
        "main/subbuf_count",
    ]
    .map(read);
    assert_eq!(is, ["1\n", "overwrite\n", "8192\n", "4\n"]);
}

/// Requirements: F8
fn first_process_is_traced() {
    // The process has executed another program since. That has its own file only if it writes
    // events.
    let file = wait::until_some("it left something", || files(true).pop());
    let mut reader = Reader::open(&file).expect("the file");
    let mut events = Vec::new();
    wait::until("it is gone", || reader.drain(|_, event| events.push(event)));
    assert_eq!(
        events,
        (0..10).map(|number| (1, number)).collect::<Vec<_>>()
    );
}

/// Requirements: F8
fn later_processes_are_traced() {
    let status = std::process::Command::new(program::path("numbered"))
        .status()
        .expect("numbered runs");
    assert!(status.success());
    wait::until("there is a file of it", || !files(false).is_empty());
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if !arguments.list
        && let Err(why) = guest::check()
    {
        eprintln!("boot-tests: {why}");
        return ExitCode::FAILURE;
    }
    let cases = [
        (
            "boot_trace_has_the_requested_settings",
            boot_trace_has_the_requested_settings as fn(),
        ),
        ("first_process_is_traced", first_process_is_traced),
        ("later_processes_are_traced", later_processes_are_traced),
    ];
    let cases = cases.map(|(name, test)| Case {
        name,
        kind: "",
        test,
    });
    progress::run(arguments, &cases, || {})
}
