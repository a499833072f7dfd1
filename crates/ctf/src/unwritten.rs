//! Counts events that do not fit on the disk.
//!
//! A recorder leaves such events in the rings and retries. `extract` and `snapshot` read a ring
//! once: they count the events and write the rest.

use std::io;

/// Events that were read but not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    events: u64,
    /// The first error.
    error: Option<String>,
}

impl Unwritten {
    /// Adds events that failed with this error.
    pub(super) fn add(&mut self, events: u64, error: &io::Error) {
        self.events += events;
        self.error.get_or_insert_with(|| error.to_string());
    }

    /// Adds an event that failed for the same reason.
    pub(super) fn add_one(&mut self) {
        self.events += 1;
    }

    /// Adds those of another stream.
    pub(super) fn join(&mut self, other: &Self) {
        self.events += other.events;
        if self.error.is_none() {
            self.error.clone_from(&other.error);
        }
    }

    /// Whether the disk was full once.
    pub(super) fn is_full(&self) -> bool {
        self.error.is_some()
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// Whether an error means that the disk, a quota or the file size limit is exhausted.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
