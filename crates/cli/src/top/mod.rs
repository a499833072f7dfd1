//! How often events come, while they come: of processes of a trace, without taking anything away
//! from who records it, and of a recording that is being written.
//!
//! A source ([`Traces`], [`Recordings`]) counts, in steps; [`Rates`] compares what was counted with
//! what had been counted before. In rings, each record is looked at. Where that takes longer than
//! it takes to write them, a part is passed over, and what is in it is taken to be like what was
//! seen: such numbers are estimates, and say so ([`Row::rate_is_estimate`]).

mod process;
mod rates;
mod recordings;
mod traces;

use std::time::{Duration, Instant};

pub use process::ProcessCounter;
pub use rates::{Rates, Row};
pub use recordings::Recordings;
pub use traces::Traces;

/// How long a step may take, about.
pub const STEP: Duration = Duration::from_millis(10);

/// A number, of which a part may be an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// What was seen.
    pub seen: u64,
    /// What was passed over is likely to have been so much.
    pub estimated: f64,
}

impl Amount {
    /// All of it.
    #[must_use]
    pub fn all(self) -> f64 {
        self.seen as f64 + self.estimated
    }

    /// Both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            seen: self.seen + other.seen,
            estimated: self.estimated + other.estimated,
        }
    }
}

/// What was counted of one event.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedEvent {
    /// `PROVIDER:NAME`
    pub name: String,
    /// How many there were.
    pub events: Amount,
    /// Their bytes, with headers.
    pub bytes: Amount,
}

/// What was counted of one process, since it was first seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// By which it is known from all others.
    pub key: String,
    /// The trace, or the directory of the recording.
    pub source: String,
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// There will be no more of it.
    pub ended: bool,
    /// What it counts was there before anybody looked: it makes no rate.
    pub backlog: bool,
    /// By name.
    pub events: Vec<CountedEvent>,
    /// Events that were dropped because a ring was full, or that are missing in the files.
    pub lost: u64,
    /// How full the fullest ring is, in 1/1000. None: that is not known.
    pub fill: Option<u64>,
}

/// Something that counts events.
pub trait Counter {
    /// Looks for what is new, until about this time. Gives how soon it wants to do so again.
    fn step(&mut self, until: Instant) -> Duration;

    /// What was counted so far. To be asked for once in an interval: then estimates are settled.
    fn counted(&mut self) -> Vec<Counted>;

    /// What cannot be counted, and why: each told once.
    fn problems(&mut self) -> Vec<String>;

    /// There will be no more.
    fn has_ended(&self) -> bool;
}
