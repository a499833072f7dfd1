//! The size of the files that a recorder writes, measured seldom.

use std::io;
use std::time::{Duration, Instant};

/// Minimum time between two measurements.
const INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time between two measurements, as a multiple of the time that the first one took.
const PAUSE_FACTOR: u32 = 20;

/// Estimates the size of the written files, with few measurements.
#[derive(Debug)]
pub(super) struct SizeMeter {
    /// Time and result of the last measurement.
    last: Option<(Instant, u64)>,
    /// Duration of the last measurement.
    took: Duration,
    /// Bytes that were read from rings since then.
    read: u64,
}

impl SizeMeter {
    pub(super) const NEW: Self = Self {
        last: None,
        took: Duration::ZERO,
        read: 0,
    };

    /// Adds bytes that were read from rings.
    pub(super) fn add(&mut self, read: u64) {
        self.read = self.read.saturating_add(read);
    }

    /// Makes the estimate unknown, for files that others write.
    pub(super) fn invalidate(&mut self) {
        self.read = u64::MAX;
    }

    /// Whether the files have reached this size.
    pub(super) fn has_reached(
        &mut self,
        limit: u64,
        measure: impl Fn() -> io::Result<u64>,
    ) -> io::Result<bool> {
        self.has_reached_by(Instant::now, limit, measure)
    }

    /// Likewise, with a clock.
    fn has_reached_by(
        &mut self,
        now: impl Fn() -> Instant,
        limit: u64,
        measure: impl Fn() -> io::Result<u64>,
    ) -> io::Result<bool> {
        // Records are at most twice as long in files as in rings.
        let more = self.read.saturating_mul(2);
        let begun = now();
        // Measuring thousands of files is expensive, so limit how often.
        let pause = INTERVAL.max(self.took * PAUSE_FACTOR);
        let is_below = |(at, bytes): (Instant, u64)| {
            begun.duration_since(at) < pause || bytes.saturating_add(more) < limit
        };
        if self.last.is_some_and(is_below) {
            return Ok(false);
        }
        let bytes = measure()?;
        let ended = now();
        self.took = ended.duration_since(begun);
        (self.last, self.read) = (Some((ended, bytes)), 0);
        Ok(bytes >= limit)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A meter of files with `size` bytes, on a clock that stands still.
    struct Files {
        meter: SizeMeter,
        now: Cell<Instant>,
        size: u64,
        /// How long a measurement takes.
        takes: Duration,
        measurements: Cell<u32>,
    }

    impl Files {
        fn new(takes: Duration) -> Self {
            Self {
                meter: SizeMeter::NEW,
                now: Cell::new(Instant::now()),
                size: 100,
                takes,
                measurements: Cell::new(0),
            }
        }

        fn pass(&self, time: Duration) {
            self.now.set(self.now.get() + time);
        }

        fn have_reached(&mut self, limit: u64) -> bool {
            let (now, takes) = (&self.now, self.takes);
            let measure = || {
                self.measurements.set(self.measurements.get() + 1);
                now.set(now.get() + takes);
                Ok(self.size)
            };
            let reached = self.meter.has_reached_by(|| now.get(), limit, measure);
            reached.unwrap()
        }
    }

    #[test]
    fn expensive_measurements_are_rare() {
        let takes = Duration::from_millis(10);
        let mut files = Files::new(takes);
        assert!(files.have_reached(1));
        let pause = takes * PAUSE_FACTOR;
        assert!(pause > INTERVAL);
        files.meter.invalidate();
        files.pass(pause - Duration::from_nanos(1));
        assert!(!files.have_reached(1));
        files.pass(Duration::from_nanos(1));
        assert!(files.have_reached(1));
        assert_eq!(files.measurements.get(), 2);
    }

    #[test]
    fn cheap_measurements_have_an_interval() {
        let mut files = Files::new(Duration::ZERO);
        assert!(files.have_reached(1));
        files.meter.invalidate();
        files.pass(INTERVAL - Duration::from_nanos(1));
        assert!(!files.have_reached(1));
        files.pass(Duration::from_nanos(1));
        assert!(files.have_reached(1));
    }

    #[test]
    fn files_that_cannot_have_reached_the_limit_are_not_measured() {
        let mut files = Files::new(Duration::ZERO);
        assert!(!files.have_reached(200));
        files.pass(INTERVAL);
        files.meter.add(49);
        files.size = 198;
        assert!(!files.have_reached(200));
        assert_eq!(files.measurements.get(), 1);
        files.meter.add(1);
        assert!(!files.have_reached(200));
        assert_eq!(files.measurements.get(), 2);
        files.pass(INTERVAL);
        files.meter.add(1);
        files.size = 200;
        assert!(files.have_reached(200));
    }
}
