//! The clocks of traces, and the kernel's clocks.

#[cfg(target_arch = "aarch64")]
use crate::uapi::LTT_CLOCK_CNTVCT as THIS_CLOCK;
#[cfg(target_arch = "x86_64")]
use crate::uapi::LTT_CLOCK_TSC as THIS_CLOCK;
use crate::uapi::{LTT_CLOCK_MONOTONIC, LttClockSync};

/// Number of times that [`sync`] reads the clocks; it keeps the fastest reading.
const SYNC_TRIES: usize = 5;

/// The clock that [`cycles`] reads: `LTT_CLOCK_*` of the header `linux/ltt.h`.
pub const NUMBER: u32 = THIS_CLOCK;

/// The clock of a trace, as `ltt_info_trace.clock` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Source {
    /// The processor's counter: [`cycles`].
    Processor,
    /// [`monotonic`], for machines whose processor's counter is not valid. The event path does not
    /// support it.
    Monotonic,
}

impl Source {
    /// The clock's number: `LTT_CLOCK_*` of the header `linux/ltt.h`.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Processor => NUMBER,
            Self::Monotonic => LTT_CLOCK_MONOTONIC,
        }
    }

    /// The clock's frequency in Hz; 0: unknown.
    #[must_use]
    pub fn frequency(self) -> u64 {
        match self {
            Self::Processor => frequency(),
            Self::Monotonic => 1_000_000_000,
        }
    }
}

/// Reads `CLOCK_MONOTONIC`, in ns. Preserves `errno`, and makes no system call if the vDSO can read
/// the kernel's clock source.
#[must_use]
pub fn monotonic() -> u64 {
    kernel_clock(libc::CLOCK_MONOTONIC)
}

/// Reads `CLOCK_REALTIME`, in ns since 1970, as [`monotonic`] does.
#[must_use]
pub fn realtime() -> u64 {
    kernel_clock(libc::CLOCK_REALTIME)
}

fn kernel_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call only writes to `time`. It cannot fail, because every kernel has these
    // clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads all clocks, as close to each other as possible. `cycles` of the result is the time of
/// `source`.
#[must_use]
pub fn sync(source: Source) -> LttClockSync {
    let read = || {
        let before = cycles();
        let (monotonic, realtime) = (monotonic(), realtime());
        let took = cycles().wrapping_sub(before);
        let sync = LttClockSync {
            cycles: match source {
                Source::Processor => before.wrapping_add(took / 2),
                Source::Monotonic => monotonic,
            },
            monotonic,
            realtime,
            freq: source.frequency(),
        };
        (took, sync)
    };
    let mut best = read();
    for _ in 1..SYNC_TRIES {
        let next = read();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// Reads the processor's counter, which time stamps are taken from.
///
/// There is no conversion and no system call.
#[inline(always)]
#[must_use]
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. Linux can forbid it to a process
    // (PR_SET_TSC), which then gets a signal; such a process cannot be traced, and does not come
    // here.
    #[cfg(target_arch = "x86_64")]
    let cycles = unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    let cycles = {
        let cycles: u64;
        // SAFETY: Linux lets every process read the counter, or emulates the read. The writer's
        // sequence has the same barrier, and explains it.
        unsafe {
            core::arch::asm!(
                "isb",
                "mrs {}, cntvct_el0",
                out(reg) cycles,
                options(nostack, preserves_flags)
            );
        }
        cycles
    };
    cycles
}

/// The counter's frequency in Hz, if the processor reports it; else 0.
#[must_use]
pub fn frequency() -> u64 {
    #[cfg(target_arch = "x86_64")]
    let frequency = 0;
    #[cfg(target_arch = "aarch64")]
    let frequency = {
        let frequency: u64;
        // SAFETY: every process may read the register.
        unsafe {
            core::arch::asm!(
                "mrs {}, cntfrq_el0",
                out(reg) frequency,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        frequency
    };
    frequency
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_never_go_back() {
        let first = cycles();
        let mut before = first;
        while before == first {
            let now = cycles();
            assert!(before <= now);
            before = now;
        }
    }

    #[test]
    fn monotonic_advances_with_time() {
        let before = monotonic();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let after = monotonic();
        assert!(after - before >= 2_000_000);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn cycles_are_the_time_of_the_source() {
        let (monotonic, counter) = (sync(Source::Monotonic), sync(Source::Processor));
        assert_eq!(
            (monotonic.cycles, monotonic.freq),
            (monotonic.monotonic, 1_000_000_000)
        );
        assert_ne!(counter.cycles, counter.monotonic);
    }

    #[test]
    fn cycles_advance_at_the_reported_frequency() {
        use std::time::Instant;

        // Nested measurements: the bounds hold however long each step takes.
        let (outer, begin, inner) = (Instant::now(), cycles(), Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (inner, end, outer) = (inner.elapsed(), cycles(), outer.elapsed());
        if frequency() != 0 {
            let seconds = (end - begin) as f64 / frequency() as f64;
            assert!(inner.as_secs_f64() * 0.99 < seconds, "{inner:?} {seconds}");
            assert!(seconds < outer.as_secs_f64() * 1.01, "{outer:?} {seconds}");
        }
    }
}
