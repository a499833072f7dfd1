//! What a reader tells.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Why something in a ring was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapKind {
    /// The program had no memory for a page: what lies in it, in whole or in part, is not there,
    /// nor is what follows in its sub-buffer. The kernel says so in the page's place, or there are
    /// zeros.
    Hole,
    /// A record that its writer had reserved, and not completed: one event is lost.
    Unfinished,
    /// The rest of a sub-buffer whose records and counts do not agree, after a writer died in it.
    Corrupted,
    /// Bytes that no writer writes.
    Damaged,
}

/// What a reader finds in a ring, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A sub-buffer begins.
    SubBuffer {
        /// When it was begun.
        time: u64,
        /// How many records the ring had lost by then.
        lost: u64,
        /// Whose ring it is: the CPU, or the thread, by the channel's scope.
        cpu: u32,
    },
    /// A whole record.
    Record {
        /// The event's id.
        id: u16,
        /// The full time.
        time: u64,
        /// Its payload, without padding.
        payload: &'a [u8],
    },
    /// Something was passed over. How many events that were is not known, other than for
    /// [`GapKind::Unfinished`]: one.
    Gap {
        /// Why.
        kind: GapKind,
    },
    /// Sub-buffers were overwritten before they were read to their end.
    Overwritten {
        /// How many.
        subbuffers: u64,
    },
}

/// What a reader has seen of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct Counts {
    /// Records of events.
    pub events: u64,
    /// Gaps of [`GapKind::Unfinished`]: so many events were lost.
    pub unfinished: u64,
    /// Gaps of [`GapKind::Hole`].
    pub holes: u64,
    /// Bytes in both.
    pub hole_bytes: u64,
    /// Gaps of [`GapKind::Corrupted`]: sub-buffers.
    pub corrupted: u64,
    /// Gaps of [`GapKind::Damaged`], impossible positions, and steps back of the time.
    pub damaged: u64,
    /// Bytes in gaps that are corrupted or damaged.
    pub damaged_bytes: u64,
    /// Sub-buffers that were overwritten before they were read to their end.
    pub overwritten: u64,
    /// Bytes that were to be read in them.
    pub overwritten_bytes: u64,
    /// Places that writers passed over, because one of an earlier round was still there. Nothing
    /// was lost by it.
    pub skipped: u64,
}

impl Counts {
    pub(super) fn add_gap(&mut self, kind: GapKind) {
        match kind {
            GapKind::Hole => self.holes += 1,
            GapKind::Unfinished => self.unfinished += 1,
            GapKind::Corrupted => self.corrupted += 1,
            GapKind::Damaged => self.damaged += 1,
        }
    }

    pub(super) fn add_gap_bytes(&mut self, kind: GapKind, bytes: u64) {
        match kind {
            GapKind::Hole | GapKind::Unfinished => self.hole_bytes += bytes,
            GapKind::Corrupted | GapKind::Damaged => self.damaged_bytes += bytes,
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.unfinished += other.unfinished;
        self.holes += other.holes;
        self.hole_bytes += other.hole_bytes;
        self.corrupted += other.corrupted;
        self.damaged += other.damaged;
        self.damaged_bytes += other.damaged_bytes;
        self.overwritten += other.overwritten;
        self.overwritten_bytes += other.overwritten_bytes;
        self.skipped += other.skipped;
    }
}
