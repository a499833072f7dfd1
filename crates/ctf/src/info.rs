//! The origin of a trace: its process or kernel, and the crash, if it is from a dump.

use std::time::{Duration, UNIX_EPOCH};

use crate::Clock;

/// The origin of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// Name of the trace.
    pub trace_name: String,
    /// The process or kernel whose events it has.
    pub origin: TraceOrigin,
    /// Host name of the machine, if it is known.
    pub hostname: Option<String>,
}

/// The process or kernel whose events a trace has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceOrigin {
    /// A process.
    Process {
        /// Its name.
        name: String,
        /// Its id.
        pid: u32,
        /// Number of its buffers. Unlike process ids, it is never reused while the machine runs.
        process: u64,
    },
    /// The kernel.
    Kernel {
        /// Output of `uname -r`.
        release: String,
        /// Output of `uname -v`.
        version: String,
    },
}

/// What is known of a crash, for a trace from a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crash {
    /// Time of the crash, in seconds since 1970.
    pub time: Option<i64>,
    /// Time of the crash, by the clock of the events.
    pub cycles: Option<u64>,
    /// Time of the crash, by `CLOCK_MONOTONIC`, in ns.
    pub monotonic: Option<u64>,
    /// The CPU that crashed.
    pub cpu: Option<u32>,
    /// The thread that ran on that CPU, in the initial namespace; 0 for the idle thread.
    pub thread: Option<u32>,
    /// The trace was found by a search, as the dump does not say where it is. A program may have
    /// forged it.
    pub may_be_forged: bool,
}

impl Crash {
    /// Time of the crash in ns since 1970, by the clock of the events, so that it lines up with the
    /// last event.
    #[must_use]
    pub fn unix_ns(&self, clock: &Clock) -> Option<i64> {
        let cycles = self.cycles_of(clock)?;
        clock.is_dated().then(|| clock.unix_ns(cycles))
    }

    /// Time of the crash by the clock of the events, if that is possible.
    fn cycles_of(&self, clock: &Clock) -> Option<u64> {
        let is_of_clock = |cycles: &u64| (clock.start()..=clock.max_time()).contains(cycles);
        self.cycles.filter(is_of_clock)
    }

    /// The clock of the events at this time before the crash, if the time of the crash is known.
    #[must_use]
    pub fn cycles_before(&self, clock: &Clock, time: Duration) -> Option<u64> {
        let cycles = u128::from(clock.freq()) * time.as_nanos() / 1_000_000_000;
        let cycles = u64::try_from(cycles).unwrap_or(u64::MAX);
        Some(self.cycles_of(clock)?.saturating_sub(cycles))
    }
}

/// Formats nanoseconds since 1970 as a date in UTC.
pub(crate) fn date(unix_ns: i64) -> String {
    match u64::try_from(unix_ns) {
        Ok(ns) => {
            humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(ns)).to_string()
        }
        Err(_) => format!("{unix_ns} ns before 1970"),
    }
}
