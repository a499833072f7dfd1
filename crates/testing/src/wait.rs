//! Waiting for conditions, without a guess at how long they take.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time limit of a condition, for the slowest kernel and a busy host. Only a failing test waits so
/// long.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Shortest and longest pause between two checks.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// Waits until `condition` returns a value.
///
/// # Panics
/// If it does not within [`LIMIT`].
pub fn until_some<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    let found = within(LIMIT, condition);
    found.unwrap_or_else(|| panic!("waited in vain until {what}"))
}

/// Waits until `condition` returns a value. `None` if it does not within the limit, for callers
/// that can say more about that than what they have waited for.
///
/// Pauses grow with time: an emulated processor needs most of a millisecond for many checks.
pub fn within<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = condition();
        if found.is_some() || begun.elapsed() >= limit {
            return found;
        }
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

/// Waits without sleeping. A sleep ends with a tick of the clock, when a process is rarely in a
/// state that a test wants to disturb.
pub fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
