//! Checks that the events of locks, conditions and threads add up.

use std::collections::HashMap;

use usertrace_testing::babeltrace::Read;

/// Counts completed waits: each request of a thread must be followed by its completion. A thread
/// that was waiting when the program ended has none.
///
/// # Panics
/// If a thread begins a wait before its last one has ended, or ends another wait.
#[must_use]
pub fn completed_waits(read: &Read) -> u64 {
    let mut waiting = HashMap::new();
    let mut waits = 0;
    for event in &read.events {
        let Some(name) = event.name.strip_prefix("pthread:") else {
            continue;
        };
        if let Some(what) = name.strip_suffix("_req") {
            let before = waiting.insert(event.address("thread"), what.to_owned());
            assert_eq!(before, None, "{event:?}");
        } else if let Some(what) = name.strip_suffix("_acq").or(name.strip_suffix("_done")) {
            let before = waiting.remove(&event.address("thread"));
            assert_eq!(before.as_deref(), Some(what), "{event:?}");
            waits += 1;
        }
    }
    waits
}
