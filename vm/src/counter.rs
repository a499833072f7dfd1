//! The frequency of the host's time-stamp counter. A guest reads the same counter.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use usertrace_sys::clock::{self, Source};

/// Between two readings of the clocks, whose error is less than a microsecond.
const INTERVAL: Duration = Duration::from_millis(20);

/// The frequency in kHz, if this is x86-64. The first call measures it, for 20 ms.
pub(crate) fn frequency() -> Option<u64> {
    static KHZ: OnceLock<u64> = OnceLock::new();
    cfg!(target_arch = "x86_64").then(|| *KHZ.get_or_init(measure))
}

fn measure() -> u64 {
    let start = clock::sync(Source::Processor);
    thread::sleep(INTERVAL);
    let end = clock::sync(Source::Processor);
    let ns = (end.monotonic - start.monotonic).max(1);
    (end.cycles - start.cycles) * 1_000_000 / ns
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two measurements of the same counter. Without a bound on how busy the host is, only a coarse
    /// comparison holds.
    #[test]
    fn measurements_agree() {
        if let Some(khz) = frequency() {
            let again = measure();
            assert!(khz.abs_diff(again) < khz / 100, "{khz} {again}");
        }
    }
}
