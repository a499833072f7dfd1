//! Finding the rseq areas of this process's threads.

use std::sync::atomic::Ordering;

use super::area::{HAS_MM_CID, Rseq, RseqError};
use super::registration;

impl Rseq {
    /// Asks the C library where it registered an area; if it did not, registers one for the calling
    /// thread. Other threads then register theirs with their first event.
    ///
    /// Not to be called from a signal handler.
    ///
    /// # Errors
    /// There is no area, see [`RseqError`].
    pub fn find() -> Result<Self, RseqError> {
        HAS_MM_CID.store(registration::knows_mm_cid(), Ordering::Relaxed);
        Self::of_library().map_or_else(registration::begin, Ok)
    }

    /// Makes the calling thread one that has a registered area, if it can be done and was not yet.
    pub(in crate::writer) fn join(self) {
        if Some(self) == Self::of_block() {
            // Who cannot has no CPU number.
            let _ = registration::register();
        }
    }
}
