//! The origin of a trace: its process or kernel, and the crash, if it is from a dump.

use std::time::{Duration, UNIX_EPOCH};

use crate::Clock;

/// The origin of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// Name of the trace.
    pub trace_name: String,
    /// Whose events it has.
    pub origin: TraceOrigin,
    /// The machine, if it is known.
    pub hostname: Option<String>,
}

/// Whose events a trace has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceOrigin {
    /// Those of a process.
    Process {
        /// Its name.
        name: String,
        /// Its id.
        pid: u32,
        /// Number of its buffers, never reused while the machine runs: ids of processes are.
        process: u64,
    },
    /// The kernel's own.
    Kernel {
        /// As `uname -r` says it.
        release: String,
        /// As `uname -v` says it.
        version: String,
    },
}

/// The trace is from the dump of a kernel that crashed: what is known of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crash {
    /// When, in seconds since 1970.
    pub time: Option<i64>,
    /// When, by the clock of the events.
    pub cycles: Option<u64>,
    /// When, by `CLOCK_MONOTONIC`, in ns.
    pub monotonic: Option<u64>,
    /// The CPU that crashed.
    pub cpu: Option<u32>,
    /// The thread that ran there, in the initial namespace; 0 if that CPU was idle.
    pub thread: Option<u32>,
    /// The dump does not say where its traces are, and what a search found may have been made by a
    /// program to mislead.
    pub may_be_forged: bool,
}

impl Crash {
    /// When the kernel crashed, in ns since 1970, by the clock of the events: so that the last
    /// event and the crash line up.
    #[must_use]
    pub fn unix_ns(&self, clock: &Clock) -> Option<i64> {
        let cycles = self.cycles_of(clock)?;
        clock.is_dated().then(|| clock.unix_ns(cycles))
    }

    /// Likewise, as the clock has it, if that can be.
    fn cycles_of(&self, clock: &Clock) -> Option<u64> {
        let is_of_clock = |cycles: &u64| (clock.start()..=clock.max_time()).contains(cycles);
        self.cycles.filter(is_of_clock)
    }

    /// What the clock had so long before the kernel crashed, if it is known when that was.
    #[must_use]
    pub fn cycles_before(&self, clock: &Clock, time: Duration) -> Option<u64> {
        let cycles = u128::from(clock.freq()) * time.as_nanos() / 1_000_000_000;
        let cycles = u64::try_from(cycles).unwrap_or(u64::MAX);
        Some(self.cycles_of(clock)?.saturating_sub(cycles))
    }
}

/// Nanoseconds since 1970 as a date, in UTC.
pub(crate) fn date(unix_ns: i64) -> String {
    match u64::try_from(unix_ns) {
        Ok(ns) => {
            humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(ns)).to_string()
        }
        Err(_) => format!("{unix_ns} ns before 1970"),
    }
}
