//! The example program with the fallback, read by `babeltrace2`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;

use crate::{VARIABLE, orders};
use usertrace_testing::babeltrace;

#[path = "../../examples/shop.rs"]
mod shop;

/// Name of the test whose process is the example.
pub(crate) const PROGRAM: &str = "the example";

pub(crate) fn run() {
    shop::main().unwrap();
}

/// Requirements: B1
pub(crate) fn its_trace() {
    let directory = tempfile::tempdir().unwrap();
    // The daemons hold a lock of this file until everything is written.
    let running = File::create(directory.path().join(".running")).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .env(VARIABLE, PROGRAM)
        .env("USERTRACE_BACKEND", "fast")
        .env("USERTRACE_OUTPUT", directory.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    // SAFETY: `running` keeps the descriptor open.
    let locked = unsafe { libc::flock(running.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0);

    let read = babeltrace::lines(directory.path());
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    orders::check(
        "layer.example.shop",
        read.lines.iter().map(|line| {
            let (head, fields) = line.split_once(": {").unwrap();
            (head.rsplit(' ').next().unwrap(), fields)
        }),
    );
}
