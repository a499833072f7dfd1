//! What the recorder and the sending thread share.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use usertrace_os::files;
use usertrace_relay::{Address, Cancel};
use usertrace_sys::clock;

use super::event::RelayEvent;
use crate::chunks::Limits;

/// Fraction of the spool at which a chunk ends: others are sent and removed meanwhile.
const PARTS: u64 = 4;
/// The frequency of traces whose clock is `CLOCK_MONOTONIC`.
const NS: u64 = 1_000_000_000;
/// Shortest chunk.
const SHORTEST_CHUNK: u64 = 64 << 10;

/// A relay to send the recording to.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Its address.
    pub address: Address,
    /// Bytes that may wait for the relay in the output directory.
    pub spool: u64,
    /// The period in which live viewers get events; `None` without these.
    pub live: Option<Duration>,
    /// How long to wait for the relay when the recording has ended; `None` for ever.
    pub patience: Option<Duration>,
}

impl RelayOptions {
    /// Limits the spool to three quarters of the room that its disk has now. A full disk would be
    /// worse than a full spool: chunks could not be finished, so none could be removed.
    #[must_use]
    pub fn fitted(self, output: &Path) -> Self {
        // The directory may not exist yet. Without an answer, the limit is the given one.
        let mut existing = output.ancestors().filter(|path| path.exists());
        let directory = match existing.next() {
            Some(path) if !path.as_os_str().is_empty() => path,
            _ => Path::new("."),
        };
        let room = files::room(directory).map_or(u64::MAX, |room| room.free);
        Self {
            spool: self.spool.min(room / 4 * 3),
            ..self
        }
    }

    /// Bytes that may wait: chunks must have some room.
    pub(super) fn spool_limit(&self) -> u64 {
        self.spool.max(PARTS * SHORTEST_CHUNK)
    }

    /// The limits of the recording: chunks end early enough for the spool.
    pub(crate) fn limits(&self, limits: Limits) -> Limits {
        let part = self.spool_limit() / PARTS;
        Limits {
            rotate_size: Some(limits.rotate_size.map_or(part, |size| size.min(part))),
            ..limits
        }
    }
}

/// What was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelaySummary {
    /// The directory of the session, as the relay names it, escaped.
    pub path: String,
    /// Whether everything was sent and confirmed.
    pub is_complete: bool,
    /// Bytes that still wait in the spool.
    pub waiting: u64,
    /// Why, if the relay failed.
    pub why: Option<String>,
}

/// The clocks at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// `CLOCK_MONOTONIC`, in ns.
    pub(super) monotonic: u64,
    /// The processor's counter.
    pub(super) cycles: u64,
}

impl Times {
    pub(crate) fn now() -> Self {
        Self {
            monotonic: clock::monotonic(),
            cycles: clock::cycles(),
        }
    }

    /// The time in the unit of traces with a clock of this frequency.
    pub(super) fn of_clock(self, frequency: Option<u64>) -> u64 {
        match frequency {
            Some(NS) => self.monotonic,
            _ => self.cycles,
        }
    }
}

/// What the recorder and the sending thread share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Nothing more will be written.
    pub(super) is_over: AtomicBool,
    /// The spool is full, and the rings are not read.
    pub(super) is_full: AtomicBool,
    pub(super) cancel: Cancel,
    pub(super) events: Mutex<Vec<RelayEvent>>,
    /// All events before this are in files, as far as the recorder knows.
    pub(super) confirmed: Mutex<Option<Times>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data are valid after each single operation.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who writes the files in the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpoolWriter {
    /// The recorder.
    Recorder,
    /// The daemons of the traced programs. Their traces have marks until they are complete.
    Daemons,
    /// Daemons, or nobody: the recording has ended, or its recorder was killed.
    Nobody,
}
