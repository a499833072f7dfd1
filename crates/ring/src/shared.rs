//! Decides how much of a sub-buffer of protocol `Shared` is readable.
//!
//! Several writers use a sub-buffer at once, and each may be killed anywhere. The reader relies on
//! these guarantees of `writer/reserve_commit/protocol.rs`:
//! - Before `head` passes a place, a writer decides about it in the last word of the place's header
//!   ([`Decision`]): it takes the place, or passes over it because a writer of an earlier round is
//!   still there. `committed` is a multiple of the sub-buffer's size before a place is taken, and
//!   grows by that size each time that it is.
//! - After its compare-exchange of `head`, the writer that takes a place stores the padding of the
//!   sub-buffer before, and then the header, by release stores, `contiguous` and `position` last. A
//!   reader that sees (acquire) both of this round sees all of the header.
//! - A writer stores a record's second word before its first one (release). A reader that sees a
//!   first word of this round sees the second word.
//! - `committed` grows (release) after all stores that it counts.
//! - In an overwriting channel, stores after a compare-exchange of `head` become visible after it.
//!   A reader that copies a byte of a new round then sees the `head` that took its place.
//! - Times in a ring never go back, and the upper 16 bits of the time do not change within a
//!   sub-buffer.
//! - A sub-buffer of a thread's ring has records of one thread.

use std::mem::offset_of;

use usertrace_sys::uapi::{LTT_LOST_WORD, LTT_PLACE_LAP_SHIFT, LTT_PLACE_TAKEN, LttSubbuf};

use crate::{Geometry, RingMemory, WaitPolicy};

/// How much of a sub-buffer is readable from a position on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Readable {
    /// Everything up to this position, which is above the reader's, is committed.
    UpTo(u64),
    /// Nothing yet: a writer may still commit.
    Wait,
    /// Nothing: writers passed over the place.
    PassedOver,
    /// Nothing: there was no memory for the page of the header.
    NoMemory,
    /// Everything that was reserved, although not all of it was committed.
    Incomplete(IncompleteSubbuf),
}

/// A sub-buffer with uncommitted bytes that the reader no longer waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncompleteSubbuf {
    place: SharedSubbuf,
    /// End of the reserved part.
    limit: u64,
    /// Value of `committed` before the copy.
    committed: u64,
    /// Its header was stored.
    pub(super) has_header: bool,
    /// Reserved bytes that were not committed. None if the counter makes no sense, or changed.
    pub(super) uncommitted: Option<u64>,
    /// The padding at its end may be missing: the writer that had to store it did not begin the
    /// next sub-buffer either.
    pub(super) pad_may_lack: bool,
}

impl IncompleteSubbuf {
    /// Checks, after the copy, that the sub-buffer did not change meanwhile.
    pub(super) fn check(mut self, memory: &mut impl RingMemory, policy: WaitPolicy) -> Readable {
        let settled = self.place.committed(memory) == self.committed
            && (self.limit == self.place.end() || memory.positions().head == self.limit);
        if !settled {
            if policy != WaitPolicy::Last {
                return Readable::Wait;
            }
            self.uncommitted = None;
        }
        Readable::Incomplete(self)
    }
}

/// A writer's decision about a place, for one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// No decision yet.
    None,
    Taken,
    PassedOver,
}

/// A sub-buffer of protocol `Shared`, by its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedSubbuf {
    geometry: Geometry,
    start: u64,
}

impl SharedSubbuf {
    /// The sub-buffer that contains `position`.
    pub(super) fn of(geometry: Geometry, position: u64) -> Self {
        Self {
            geometry,
            start: geometry.subbuf_start(position),
        }
    }

    fn end(self) -> u64 {
        self.start + self.geometry.subbuf_size()
    }

    fn load(self, memory: &mut impl RingMemory, field: usize) -> u64 {
        memory.load(self.geometry.offset(self.start) + field as u64)
    }

    /// Bytes that were ever committed at this place (acquire). Pairs with the writers' release
    /// additions: the reader then sees all bytes that it counts.
    fn committed(self, memory: &mut impl RingMemory) -> u64 {
        self.load(memory, offset_of!(LttSubbuf, committed))
    }

    /// Whether the header is in a page that there was no memory for. No writer stores these words,
    /// as they are no position.
    fn is_lost(self, memory: &mut impl RingMemory) -> bool {
        [
            offset_of!(LttSubbuf, position),
            offset_of!(LttSubbuf, contiguous),
        ]
        .into_iter()
        .all(|field| self.load(memory, field) == LTT_LOST_WORD)
    }

    /// Whether the header of this round was stored. Pairs with the release stores of its last
    /// words.
    fn has_header(self, memory: &mut impl RingMemory) -> bool {
        let contiguous = self.contiguous(memory);
        contiguous > self.start
            && contiguous <= self.end()
            && self.load(memory, offset_of!(LttSubbuf, position)) == self.start
    }

    /// The end of the committed prefix, if the header is that of this round. Pairs with the release
    /// stores of it: the reader then sees everything below.
    fn contiguous(self, memory: &mut impl RingMemory) -> u64 {
        self.load(memory, offset_of!(LttSubbuf, contiguous)) & !7
    }

    fn decision(self, memory: &mut impl RingMemory) -> Decision {
        // The lower half. Only writers use the upper one.
        let word = self.load(memory, offset_of!(LttSubbuf, busy)) as u32;
        // Laps are counted modulo 2^31.
        let lap = (self.start / self.geometry.ring_size() + 1) as u32;
        let decided_lap = word & !LTT_PLACE_TAKEN;
        if decided_lap != lap << LTT_PLACE_LAP_SHIFT {
            Decision::None
        } else if word & LTT_PLACE_TAKEN != 0 {
            Decision::Taken
        } else {
            Decision::PassedOver
        }
    }

    /// Whether the header of the sub-buffer that follows this one was stored.
    fn has_next_header(self, memory: &mut impl RingMemory, head: u64) -> bool {
        let mut start = self.end();
        while start < head {
            let next = Self::of(self.geometry, start);
            if next.decision(memory) != Decision::PassedOver {
                return next.has_header(memory);
            }
            start = next.end();
        }
        false
    }

    /// How much is readable from `position` on, below `head`.
    pub(super) fn readable(
        self,
        memory: &mut impl RingMemory,
        position: u64,
        head: u64,
        policy: WaitPolicy,
    ) -> Readable {
        let limit = self.end().min(head);
        if self.is_lost(memory) {
            return Readable::NoMemory;
        }
        if !self.has_header(memory) {
            return if self.decision(memory) == Decision::PassedOver {
                Readable::PassedOver
            } else if policy.waits_at(position) {
                Readable::Wait
            } else {
                let committed = self.committed(memory);
                let of_round = committed % self.geometry.subbuf_size();
                self.incomplete(memory, head, committed, of_round, false)
            };
        }
        let contiguous = self.contiguous(memory);
        // If `head` did not change between two loads, and as much was committed between them as was
        // reserved, all reservations are committed.
        let reserved = memory.positions().head;
        let committed = self.committed(memory);
        let base = self.load(memory, offset_of!(LttSubbuf, base));
        let of_round = committed.wrapping_sub(base);
        let whole = of_round == self.geometry.subbuf_size()
            || reserved <= self.end()
                && reserved.wrapping_sub(self.start) == of_round
                && memory.positions().head == reserved;
        if whole {
            return Readable::UpTo(limit);
        }
        if policy != WaitPolicy::Last {
            let up_to = contiguous.min(limit);
            if up_to > position {
                return Readable::UpTo(up_to);
            }
            if policy.waits_at(position) {
                return Readable::Wait;
            }
        }
        self.incomplete(memory, head, committed, of_round, true)
    }

    fn incomplete(
        self,
        memory: &mut impl RingMemory,
        head: u64,
        committed: u64,
        of_round: u64,
        has_header: bool,
    ) -> Readable {
        let limit = self.end().min(head);
        Readable::Incomplete(IncompleteSubbuf {
            place: self,
            limit,
            committed,
            has_header,
            uncommitted: (limit - self.start).checked_sub(of_round),
            pad_may_lack: head > self.end() && !self.has_next_header(memory, head),
        })
    }
}
