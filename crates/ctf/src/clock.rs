//! Conversion from the trace's clock to the time of day.

use usertrace_os::procfs;
use usertrace_sys::uapi::LttClockSync;

const NS: u64 = 1_000_000_000;

const YEAR: u64 = 366 * 86400;

/// Longest trace, in years. Later times are refused: readers give up when a time exceeds 63 bits of
/// ns.
const MAX_YEARS: u64 = 50;

/// Latest start of a trace, in seconds since 1970 and since the clock was at 0, so that readers
/// know its last second: the year 2212.
const MAX_START: u64 = i64::MAX as u64 / NS - MAX_YEARS * YEAR;

/// The clock of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    freq: u64,
    /// Time at 0 cycles: whole seconds since 1970, and the rest in cycles.
    offset_s: i64,
    offset: u64,
    start: u64,
    guessed: bool,
    dated: bool,
    boot: Option<[u8; 16]>,
    error_ns: Option<u64>,
}

impl Clock {
    /// Derives the clock from sync points. `start` fixes the offset. The frequency is that of the
    /// latest point that has one, or else the rate between `start` and the farthest of `others`.
    /// Without either, the clock is assumed to count nanoseconds, see [`Clock::is_guessed`].
    #[must_use]
    pub fn new(start: &LttClockSync, others: &[LttClockSync]) -> Self {
        // The kernel may refine the frequency while it runs.
        let reported = std::iter::once(start)
            .chain(others)
            .filter(|sync| sync.freq != 0)
            .max_by_key(|sync| sync.cycles)
            .map(|sync| sync.freq);
        let measured = || {
            let (cycles, ns) = others
                .iter()
                .map(|other| {
                    (
                        i128::from(other.cycles) - i128::from(start.cycles),
                        i128::from(other.monotonic) - i128::from(start.monotonic),
                    )
                })
                .max_by_key(|(_, ns)| ns.abs())?;
            let freq = (ns != 0).then(|| cycles * i128::from(NS) / ns)?;
            u64::try_from(freq).ok().filter(|&freq| freq != 0)
        };
        // A frequency beyond that of any clock is damage, and arithmetic would overflow.
        let freq = reported.or_else(measured).filter(|&freq| freq <= 1000 * NS);
        let guessed = freq.is_none();
        let freq = freq.unwrap_or(NS);

        let dated = start.realtime / NS <= MAX_START && start.cycles / freq <= MAX_START;
        let start = if dated {
            *start
        } else {
            LttClockSync::default()
        };

        // In units of 1 / (freq * NS) s, which fits: 64 bits times 40 bits.
        let at_zero = i128::from(start.realtime) * i128::from(freq)
            - i128::from(start.cycles) * i128::from(NS);
        let second = i128::from(freq) * i128::from(NS);
        Self {
            freq,
            offset_s: at_zero.div_euclid(second) as i64,
            offset: (at_zero.rem_euclid(second) / i128::from(NS)) as u64,
            start: start.cycles,
            guessed,
            dated,
            boot: None,
            error_ns: None,
        }
    }

    /// Sets the id of the boot of the machine, if it is known. Traces of one boot have one clock.
    #[must_use]
    pub fn of_boot(self, boot: Option<[u8; 16]>) -> Self {
        Self { boot, ..self }
    }

    /// Says that the traces are of this boot of this machine.
    #[must_use]
    pub fn of_this_boot(self) -> Self {
        self.of_boot(procfs::boot_id())
    }

    /// Sets the largest error of the time of day in nanoseconds, if it is known.
    #[must_use]
    pub fn with_error(self, error_ns: Option<u64>) -> Self {
        Self { error_ns, ..self }
    }

    /// The largest error of the time of day, in cycles, if it is known. An error of centuries is
    /// none that is known: babeltrace2 aborts at the largest number.
    #[must_use]
    pub fn error(&self) -> Option<u64> {
        let cycles = u128::from(self.error_ns?) * u128::from(self.freq);
        let cycles = i64::try_from(cycles.div_ceil(NS.into())).ok()?;
        u64::try_from(cycles).ok()
    }

    /// The id of the machine's boot, if it is known.
    #[must_use]
    pub fn boot(&self) -> Option<[u8; 16]> {
        self.boot
    }

    /// Ticks per second.
    #[must_use]
    pub fn freq(&self) -> u64 {
        self.freq
    }

    /// Seconds since 1970 at 0 cycles, rounded down.
    #[must_use]
    pub fn offset_s(&self) -> i64 {
        self.offset_s
    }

    /// Remainder of [`Clock::offset_s`], in cycles.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Time at which the trace was created, in cycles.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether the frequency is unknown.
    #[must_use]
    pub fn is_guessed(&self) -> bool {
        self.guessed
    }

    /// Whether the creation time of the trace is known. Otherwise times count from 1970.
    #[must_use]
    pub fn is_dated(&self) -> bool {
        self.dated
    }

    /// The latest time that a record may have.
    #[must_use]
    pub fn max_time(&self) -> u64 {
        let years = self.freq.saturating_mul(MAX_YEARS * YEAR);
        self.start.saturating_add(years)
    }

    /// Converts cycles to nanoseconds since 1970.
    #[must_use]
    pub fn unix_ns(&self, cycles: u64) -> i64 {
        let since = (i128::from(cycles) + i128::from(self.offset)) * i128::from(NS);
        let ns = i128::from(self.offset_s) * i128::from(NS) + since / i128::from(self.freq);
        ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: LttClockSync = LttClockSync {
        cycles: 5_000_000_001,
        monotonic: 2_000_000_000,
        realtime: 1_700_000_000_123_456_789,
        freq: 2_500_000_000,
    };

    #[test]
    fn start_has_the_given_time() {
        let clock = Clock::new(&START, &[]);
        assert_eq!(clock.freq(), 2_500_000_000);
        assert!(clock.offset() < clock.freq());
        assert!((clock.unix_ns(START.cycles) - START.realtime as i64).abs() <= 1);
        let second_later = clock.unix_ns(START.cycles + clock.freq());
        assert_eq!(second_later - clock.unix_ns(START.cycles), 1_000_000_000);
    }

    #[test]
    fn error_is_rounded_up_to_cycles() {
        let clock = Clock::new(&START, &[]);
        assert_eq!(clock.error(), None);
        for (ns, cycles) in [(0, 0), (1, 3), (2, 5), (1_000_000, 2_500_000)] {
            assert_eq!(clock.with_error(Some(ns)).error(), Some(cycles));
        }
        assert_eq!(clock.with_error(Some(u64::MAX)).error(), None);
    }

    #[test]
    fn unknown_frequency_is_measured() {
        let start = LttClockSync { freq: 0, ..START };
        let later = LttClockSync {
            cycles: start.cycles + 300_000,
            monotonic: start.monotonic + 100_000,
            ..start
        };
        let near = LttClockSync {
            cycles: start.cycles + 1,
            monotonic: start.monotonic + 1,
            ..start
        };
        let clock = Clock::new(&start, &[near, later]);
        assert_eq!(clock.freq(), 3_000_000_000);
        assert!(!clock.is_guessed());
        assert!(Clock::new(&start, &[]).is_guessed());
        assert!(Clock::new(&start, &[start]).is_guessed());
        assert_eq!(Clock::new(&start, &[START]).freq(), START.freq);
    }

    #[test]
    fn latest_frequency_wins() {
        let later = LttClockSync {
            cycles: START.cycles + 1,
            freq: 2_500_001_000,
            ..START
        };
        let earlier = LttClockSync {
            cycles: 5,
            freq: 2_400_000_000,
            ..START
        };
        assert_eq!(Clock::new(&START, &[earlier, later]).freq(), later.freq);
        assert_eq!(Clock::new(&START, &[earlier]).freq(), START.freq);
    }

    #[test]
    fn machine_without_a_real_time_clock_starts_before_1970() {
        let start = LttClockSync {
            realtime: 500_000_000,
            ..START
        };
        let clock = Clock::new(&start, &[]);
        assert!(clock.offset_s() < 0);
        assert!((clock.unix_ns(start.cycles) - 500_000_000).abs() <= 1);
    }

    proptest! {
        /// Sync points come from a dump, and may be anything.
        ///
        /// Requirements: F4
        #[test]
        fn arbitrary_sync_points_are_survived(
            words in prop::array::uniform8((any::<u64>(), 0u32..64).prop_map(|(word, less)| word >> less)),
            time in any::<u64>(),
        ) {
            let point = |w: &[u64]| LttClockSync { cycles: w[0], monotonic: w[1], realtime: w[2], freq: w[3] };
            let clock = Clock::new(&point(&words[..4]), &[point(&words[4..])]);
            prop_assert!(clock.freq() > 0 && clock.offset() < clock.freq());
            let _ = clock.unix_ns(time);
            prop_assert!(clock.max_time() >= clock.start());
            // A reader must represent each term and their sum in 63 bits of ns.
            let ns = |cycles: u64| i128::from(cycles) * i128::from(NS) / i128::from(clock.freq());
            let at_zero = i128::from(clock.offset_s()) * i128::from(NS) + ns(clock.offset());
            let last = ns(clock.max_time());
            for sum in [at_zero, last, at_zero + last] {
                prop_assert!(i64::try_from(sum).is_ok(), "{}", sum);
            }
        }
    }
}
