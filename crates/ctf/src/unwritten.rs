//! Events that find no room on the disk.
//!
//! A recorder leaves them in the rings, and tries again. `extract` and `snapshot` read a ring once:
//! they count such events, and write the rest.

use std::io;

/// Events that were read, and not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    events: u64,
    /// Why not, the first time.
    error: Option<String>,
}

impl Unwritten {
    /// So many more, because of this.
    pub(super) fn add(&mut self, events: u64, error: &io::Error) {
        self.events += events;
        self.error.get_or_insert_with(|| error.to_string());
    }

    /// One more, for the same reason.
    pub(super) fn add_one(&mut self) {
        self.events += 1;
    }

    /// Those of another stream, too.
    pub(super) fn join(&mut self, other: &Self) {
        self.events += other.events;
        if self.error.is_none() {
            self.error.clone_from(&other.error);
        }
    }

    /// Was there no room once?
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

/// Says the error that there is no room for what was to be written?
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
