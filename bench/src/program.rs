//! The part that the programs which are measured have in common.

use std::time::Duration;

/// The time of `CLOCK_MONOTONIC`, which all processes share.
#[must_use]
pub fn now() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is its own.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(
        now.tv_sec.cast_unsigned(),
        now.tv_nsec.unsigned_abs() as u32,
    )
}

/// Tells the time on standard output, in nanoseconds.
pub fn begun() {
    let bytes = (now().as_nanos() as u64).to_ne_bytes();
    // SAFETY: reads the bytes. Where nobody wants to know, nothing is lost.
    unsafe { libc::write(libc::STDOUT_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

/// Waits for the end of standard input, and returns how much there was.
#[must_use]
pub fn wait() -> u64 {
    let mut bytes = [0u8; 64];
    let mut count = 0;
    let mut read = || {
        // SAFETY: as many bytes as there are.
        unsafe { libc::read(libc::STDIN_FILENO, bytes.as_mut_ptr().cast(), bytes.len()) }
    };
    while let n @ 1.. = read() {
        count += n.cast_unsigned() as u64;
    }
    count
}
