//! The clock of the traces, beside those of the kernel.

use usertrace_sys::uapi::LttClockSync;

/// Tries to read all of them at the same moment.
const TRIES: usize = 5;

fn ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time`. Async-signal-safe; these clocks exist everywhere.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time of day, in ns since 1970.
pub(super) fn realtime() -> u64 {
    ns(libc::CLOCK_REALTIME)
}

/// All clocks, as close to each other as can be had.
pub(crate) fn sync() -> LttClockSync {
    let read = || {
        let before = crate::clock::cycles();
        let (monotonic, realtime) = (ns(libc::CLOCK_MONOTONIC), ns(libc::CLOCK_REALTIME));
        let took = crate::clock::cycles().wrapping_sub(before);
        let sync = LttClockSync {
            cycles: before.wrapping_add(took / 2),
            monotonic,
            realtime,
            freq: crate::clock::frequency(),
        };
        (took, sync)
    };
    let mut best = read();
    for _ in 1..TRIES {
        let next = read();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// The time of day, for people.
pub(super) fn date() -> String {
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(realtime());
    humantime::format_rfc3339_millis(now).to_string()
}
