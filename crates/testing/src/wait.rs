//! Waiting for what must happen, without a guess at how long that takes.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long anything may take, on the slowest kernel and a busy host. Only a failing test waits so
/// long.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Between two questions.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// Waits until `condition` gives something. It is asked less often the longer that takes: an
/// emulated processor needs most of a millisecond for many a question.
///
/// # Panics
/// If it does not within [`LIMIT`].
pub fn until_some<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "waited in vain until {what}");
        sleep((begun.elapsed() / 16).clamp(SHORTEST, LONGEST));
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within [`LIMIT`].
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Waits without sleeping: a sleep ends with a tick of the clock, when a process rarely is where it
/// can be hurt.
pub fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
