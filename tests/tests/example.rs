//! The example `shop` of `usertrace-tracing` on the fallback, read by `babeltrace2`. The example is
//! a program of this package, which cargo builds for this test.

use std::process::Command;

use usertrace_testing::{babeltrace, shop};
use usertrace_tests::traces::Traces;

/// B1, D.
#[test]
fn its_trace() {
    let traces = Traces::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
    let status = traces.of(&mut command).status().unwrap();
    assert!(status.success(), "{status}");
    traces.wait();

    let read = babeltrace::lines(traces.path());
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    shop::check(read.lines.iter().map(|line| {
        let (head, fields) = line.split_once(": {").unwrap();
        (head.rsplit(' ').next().unwrap(), fields)
    }));
}
