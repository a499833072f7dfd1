//! Rings of a channel of events, with their readers and streams.

use usertrace_ring::{Counts, RingReader};

use super::lazy_stream::LazyStream;

#[derive(Debug)]
pub(super) struct EventRing {
    pub(super) reader: RingReader,
    pub(super) stream: LazyStream,
    /// Lost records that the stream has counted.
    pub(super) lost: u64,
    /// Counters of earlier readers.
    pub(super) before: Counts,
    /// Events that `reader` read and that were left out.
    pub(super) earlier: u64,
    /// Times of the first and last event.
    pub(super) span: Option<(u64, u64)>,
}

impl EventRing {
    /// Sum of all readers' counters.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.before;
        counts += self.reader.counts();
        counts.events -= self.earlier;
        counts
    }
}
