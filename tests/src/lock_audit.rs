//! Whether the events of locks, conditions and threads add up.

use std::collections::HashMap;

use usertrace_testing::babeltrace::Read;

/// Of each thread, what it began to wait for, it got, if the program was not ended meanwhile. How
/// many such waits there were.
///
/// # Panics
/// If a wait has not ended where the next one begins, or ends as another one.
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
