//! The example `shop` of `usertrace-tracing` on the fallback, read by `babeltrace2`. The example is
//! a program of this package, which cargo builds for this test.

use std::fs;
use std::process::Command;

use usertrace_testing::documents::{event_of, fenced};
use usertrace_testing::{babeltrace, shop};
use usertrace_tests::traces::Traces;
use usertrace_vm::repository;

/// Records the example, and returns the lines of its trace.
fn recorded() -> Vec<String> {
    let traces = Traces::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
    let status = traces.of(&mut command).status().unwrap();
    assert!(status.success(), "{status}");
    traces.wait();

    let read = babeltrace::lines(traces.path());
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    read.lines
}

/// Requirements: B1
#[test]
fn example_records_its_spans_and_events() {
    shop::check(recorded().iter().map(|line| {
        let (head, fields) = line.split_once(": {").unwrap();
        (head.rsplit(' ').next().unwrap(), fields)
    }));
}

/// The tutorial shows the events of one span of this program.
#[test]
fn the_tutorial_shows_its_trace() {
    let page = repository().join("docs/tutorials/instrument-rust.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = fenced(&page, "");
    let shown: Vec<_> = blocks[1].iter().copied().map(event_of).collect();
    let lines: Vec<_> = recorded().iter().map(|line| event_of(line)).collect();
    // Threads take numbers of spans in any order.
    let span_of = |line: &str| -> Option<String> {
        let (_, rest) = line.split_once("{ span = ")?;
        Some(rest.split([',', ' ']).next()?.to_owned())
    };
    let new = lines.iter().find(|line| line.ends_with(", order = 4 }"));
    let span = span_of(new.expect("the span of order 4")).unwrap();
    let of_span = lines
        .iter()
        .filter(|line| span_of(line).as_ref() == Some(&span));
    let events: Vec<_> = of_span
        .map(|line| line.replace(&format!("{{ span = {span}"), "{ span = 1"))
        // The path is that of the package that builds the example.
        .map(|line| line.replace("tests/../tracing/", "tracing/"))
        .collect();
    assert_eq!(shown, events);
}
