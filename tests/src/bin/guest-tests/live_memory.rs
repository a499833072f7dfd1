//! The extractor on the memory of the machine that it runs on (C7).

use std::process::Command;

use usertrace_testing::babeltrace::{self, Printed};
use usertrace_tests::child::Child;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, check_prefix};
use usertrace_tests::program;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![traces_are_extracted_from_live_memory];

const EVENTS: u64 = 3000;

/// Requirements: C7
fn traces_are_extracted_from_live_memory() {
    let (trace, other) = (Trace::create("in-memory"), Trace::create("another"));
    trace.start();
    other.start();
    let mut child = Child::spawn(|link| {
        event::attach();
        for number in 0..EVENTS {
            event::write(0, number);
        }
        link.send(0);
        link.receive();
    });
    child.link.receive();
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("traces");
    let ran = Command::new(program::path("usertrace"))
        .args(["extract", "/proc/kcore", "--trace", "in-mem*", "--output"])
        .arg(&output)
        .output()
        .expect("usertrace runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let read = babeltrace::read(&output);
    let numbers: Vec<_> = read.events.iter().map(Printed::numbered).collect();
    let numbers: Vec<_> = numbers.into_iter().map(|(_, number)| number).collect();
    assert_eq!(check_prefix(&numbers), EVENTS, "{said}");
    assert_eq!(std::fs::read_dir(&output).expect("traces").count(), 1);
    child.link.send(0);
    child.join();
}
