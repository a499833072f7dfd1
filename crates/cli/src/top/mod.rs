//! Counts events of running programs: in the rings of traces, without consuming anything, and in
//! recordings that are being written.
//!
//! A source ([`Traces`], [`Recordings`]) counts, in steps. [`Rates`] compares successive counts. In
//! rings, counters read each record. If programs write faster than that, a counter skips a part and
//! assumes that it is like the rest. Such numbers are estimates and marked so
//! ([`Row::rate_is_estimate`]). Channels that count have tables, which are exact; their events have
//! no bytes.

mod chosen;
mod places;
mod process;
mod rates;
mod recordings;
mod tables;
mod traces;

use std::time::{Duration, Instant};

pub use places::{Code, SharedCode};
pub use process::ProcessCounter;
pub use rates::{Rates, Row};
pub use recordings::Recordings;
pub use traces::Traces;
use usertrace_reader::{Binding, Condition};

/// Approximate length of a step.
pub const STEP: Duration = Duration::from_millis(10);

/// A count, part of which may be an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// The exact part.
    pub seen: u64,
    /// Estimate for the skipped part.
    pub estimated: f64,
}

impl Amount {
    /// The sum of both parts.
    #[must_use]
    pub fn all(self) -> f64 {
        self.seen as f64 + self.estimated
    }

    /// Adds the parts of two amounts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            seen: self.seen + other.seen,
            estimated: self.estimated + other.estimated,
        }
    }
}

/// Counts of one event.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedEvent {
    /// `PROVIDER:NAME`
    pub name: String,
    /// The function that the events are from, with its file and line, if places are counted.
    pub place: Option<String>,
    /// Number of events.
    pub events: Amount,
    /// Their bytes, with headers.
    pub bytes: Amount,
}

/// Counts of one process since it was first seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Identifies the process among all others of a source.
    pub key: String,
    /// The trace, or the directory of the recording.
    pub source: String,
    /// Process id.
    pub pid: u32,
    /// Name of the process.
    pub comm: String,
    /// The process has ended, or will write no more.
    pub ended: bool,
    /// The events were written before anybody looked, so they make no rate.
    pub backlog: bool,
    /// Its events, sorted by name.
    pub events: Vec<CountedEvent>,
    /// Events that were dropped because a ring was full, or that are missing in the files.
    pub lost: u64,
    /// Fill level of the fullest ring, in 1/1000; `None` if unknown.
    pub fill: Option<u64>,
}

/// A source of counts.
pub trait Counter {
    /// Counts new events, until about `until`. Returns the time until the next step is needed.
    fn step(&mut self, until: Instant) -> Duration;

    /// The counts so far. This also settles estimates, so call it once in an interval.
    fn counted(&mut self) -> Vec<Counted>;

    /// New messages about events that cannot be counted, each given once.
    fn problems(&mut self) -> Vec<String>;

    /// The bindings of a condition to all events that are known, to see which of its names none of
    /// them has.
    fn bindings(&self, condition: &Condition) -> Vec<Binding>;

    /// Whether no more events will come.
    fn has_ended(&self) -> bool;
}
