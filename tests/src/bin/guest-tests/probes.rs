//! Probes in a process that the kernel traces (B2).

use std::process::Command;

use usertrace_scenarios::probes::RECORDED;
use usertrace_testing::babeltrace;
use usertrace_tests::control::Trace;
use usertrace_tests::program;
use usertrace_tests::record::Recorder;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![probes_are_called_while_the_kernel_traces];

/// The program checks what its probes do; the test checks that the trace has the program's events.
///
/// Requirements: B2
fn probes_are_called_while_the_kernel_traces() {
    let trace = Trace::started("probes");
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let recorder = Recorder::start(&trace, &output);
    let status = Command::new(program::path("probed"))
        .arg(trace.path())
        .status()
        .expect("it runs");
    assert!(status.success(), "{status}");
    recorder.finish(&trace);
    let read = babeltrace::read(&output);
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    for at in 0..2 {
        let name = RECORDED[0][at].0;
        let count: usize = RECORDED.iter().map(|process| process[at].1).sum();
        let events = read.events.iter().filter(|event| event.name == name);
        assert_eq!(events.count(), count, "{name}");
    }
}
