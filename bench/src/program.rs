//! Common parts of the measured programs.

use std::time::Duration;

/// The time of `CLOCK_MONOTONIC`, which all processes share.
#[must_use]
pub fn now() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to `now` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(
        now.tv_sec.cast_unsigned(),
        now.tv_nsec.unsigned_abs() as u32,
    )
}

/// Writes the time to standard output, in nanoseconds.
pub fn report_start() {
    report(now());
}

/// Writes the processor time of this process so far to standard output, in nanoseconds.
pub fn report_processor() {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to `time` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    report(Duration::new(
        time.tv_sec.cast_unsigned(),
        time.tv_nsec.unsigned_abs() as u32,
    ));
}

fn report(time: Duration) {
    let bytes = (time.as_nanos() as u64).to_ne_bytes();
    // SAFETY: the kernel reads the bytes. A failure does no harm.
    unsafe { libc::write(libc::STDOUT_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

/// Waits for the end of standard input, and returns its number of bytes.
#[must_use]
pub fn wait() -> u64 {
    let mut bytes = [0u8; 64];
    let mut count = 0;
    let mut read = || {
        // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`.
        unsafe { libc::read(libc::STDIN_FILENO, bytes.as_mut_ptr().cast(), bytes.len()) }
    };
    while let n @ 1.. = read() {
        count += n.cast_unsigned() as u64;
    }
    count
}
