//! Finds the rseq areas of this process's threads.

use std::sync::atomic::Ordering;

use super::area::{HAS_MM_CID, Rseq, RseqError};
use super::registration;

impl Rseq {
    /// Finds the areas that the C library registered. If there are none, registers one for the
    /// calling thread, and other threads register theirs with their first event.
    ///
    /// Not async-signal-safe.
    ///
    /// # Errors
    /// The process cannot have an area, see [`RseqError`].
    pub fn find() -> Result<Self, RseqError> {
        HAS_MM_CID.store(registration::knows_mm_cid(), Ordering::Relaxed);
        Self::of_library().map_or_else(registration::begin, Ok)
    }

    /// Registers the calling thread's area, if it has none and can have one. Async-signal-safe.
    pub(in crate::writer) fn join(self) {
        if Some(self) == Self::of_block() {
            // If that fails, the thread has no CPU number, and its events are lost.
            let _ = registration::register();
        }
    }
}
