//! The layer of `tracing`, and `log` through it, with the kernel's buffers (B1).

use usertrace_testing::shop;
use usertrace_tests::{program, record};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![spans_and_events_of_tracing_and_log_are_recorded];

/// Requirements: B1
fn spans_and_events_of_tracing_and_log_are_recorded() {
    let (_, read) = record::run(&[program::path("shop")]);
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    let events = read.events.iter();
    shop::check(events.map(|event| (event.name.as_str(), event.fields.as_str())));
}
