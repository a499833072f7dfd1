//! Sleeping.

use std::time::Duration;

use syscalls::{Sysno, raw};

/// Sleeps for a while, or until a signal handler ran (`nanosleep`).
///
/// Async-signal-safe; leaves `errno` alone.
pub(crate) fn sleep(duration: Duration) {
    let time = timespec(duration);
    // SAFETY: the kernel reads `time`, and writes nothing.
    unsafe { raw::syscall2(Sysno::nanosleep as usize, &raw const time as usize, 0) };
}

/// The kernel's form of a duration.
pub(super) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: duration.subsec_nanos().into(),
    }
}
