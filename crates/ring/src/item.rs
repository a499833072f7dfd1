//! Items that a reader reports, and its counters.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Why the reader passed over bytes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapKind {
    /// A page that there was no memory for. What lies in it is lost, and so is the rest of its
    /// sub-buffer. The page reads as the kernel's marker, or as zeros.
    Hole,
    /// A record that its writer reserved and did not complete: one event is lost.
    Unfinished,
    /// The rest of a sub-buffer in which a writer died, and whose records do not agree with its
    /// counters.
    Corrupted,
    /// Bytes that a correct writer never writes.
    Damaged,
}

/// One item in a ring, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Start of a sub-buffer.
    SubBuffer {
        /// Time at which the writer began it.
        time: u64,
        /// Records that the ring had lost by then.
        lost: u64,
        /// The CPU or the thread that wrote it, by the channel's scope.
        cpu: u32,
    },
    /// A complete record.
    Record {
        /// Event id.
        id: u16,
        /// Full time.
        time: u64,
        /// Payload, without padding.
        payload: &'a [u8],
    },
    /// A gap. The number of events in it is unknown, except for [`GapKind::Unfinished`]: one.
    Gap {
        /// Reason.
        kind: GapKind,
    },
    /// Sub-buffers that were overwritten before they were read to their end.
    Overwritten {
        /// Number of sub-buffers.
        subbuffers: u64,
    },
}

/// Counters of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct Counts {
    /// Records of events.
    pub events: u64,
    /// Gaps of [`GapKind::Unfinished`]: lost events.
    pub unfinished: u64,
    /// Gaps of [`GapKind::Hole`].
    pub holes: u64,
    /// Bytes in unfinished records and holes.
    pub hole_bytes: u64,
    /// Gaps of [`GapKind::Corrupted`]: sub-buffers.
    pub corrupted: u64,
    /// Gaps of [`GapKind::Damaged`], impossible positions, and steps back in time.
    pub damaged: u64,
    /// Bytes in gaps that are corrupted or damaged.
    pub damaged_bytes: u64,
    /// Sub-buffers that were overwritten before they were read to their end.
    pub overwritten: u64,
    /// Unread bytes in them.
    pub overwritten_bytes: u64,
    /// Places that writers passed over, because a writer of an earlier round was still there. No
    /// event was lost.
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
