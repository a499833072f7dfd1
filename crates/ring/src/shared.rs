//! What can be read of a sub-buffer of the shared protocol.
//!
//! Several writers are in it at once, and each may be killed anywhere. What the reader relies on,
//! of `writer/reserve_commit/protocol.rs`:
//! - A place that `head` goes over was decided about before, in the last word of its header
//!   ([`Decision`]): it was taken, or passed over because a writer of an earlier round was still
//!   there. `committed` is a multiple of the sub-buffer's size before a place is taken, and grows
//!   by that size each time that it is.
//! - After its compare-exchange of `head`, the writer that takes a place stores the padding of the
//!   sub-buffer before, and then the header by release stores, `contiguous` and `position` after
//!   all else: who sees that both are of this round (acquire) sees all of the header.
//! - A record's second word is stored before its first one (release): a first word of this round
//!   comes with the second.
//! - `committed` grows (release) after everything that it counts was stored.
//! - Where the channel overwrites, what is stored after a compare-exchange of `head` comes after it
//!   for everybody: a copy that has a byte of a new round sees the `head` that took its place.
//! - Times in a ring never go back, and the upper 16 bits of the time do not change within a
//!   sub-buffer.
//! - A sub-buffer of a thread's ring has records of one thread.

use std::mem::offset_of;

use usertrace_sys::uapi::{LTT_LOST_WORD, LTT_PLACE_LAP_SHIFT, LTT_PLACE_TAKEN, LttSubbuf};

use crate::{Geometry, Patience, RingMemory};

/// What can be read of a sub-buffer, from some position in it on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// Everything up to this position was committed: something.
    Whole(u64),
    /// Nothing yet.
    Wait,
    /// Nothing: its place was passed over.
    PassedOver,
    /// Nothing: there was no memory for its header, which would say what there is.
    Lost,
    /// All that was reserved, though not all of it was committed.
    Broken(Remains),
}

/// A sub-buffer that is not whole, and that is not waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remains {
    place: Place,
    /// Where it is read up to.
    limit: u64,
    /// `committed`, when it was looked at.
    committed: u64,
    /// It has a header.
    pub(super) begun: bool,
    /// Bytes, of those that were reserved, that were not committed. None: that cannot be said.
    pub(super) uncommitted: Option<u64>,
    /// Padding up to its end may not have been stored: who was to do so did not begin the next
    /// sub-buffer either.
    pub(super) pad_may_lack: bool,
}

impl Remains {
    /// Does what was seen of it still hold?
    pub(super) fn check(mut self, memory: &mut impl RingMemory, patience: Patience) -> Look {
        let settled = self.place.committed(memory) == self.committed
            && (self.limit == self.place.end() || memory.positions().head == self.limit);
        if !settled {
            if patience != Patience::Last {
                return Look::Wait;
            }
            self.uncommitted = None;
        }
        Look::Broken(self)
    }
}

/// What was decided about a place, for a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// Nothing, as yet.
    None,
    Taken,
    PassedOver,
}

/// The place of one sub-buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    geometry: Geometry,
    start: u64,
}

impl Place {
    /// Of the sub-buffer that `position` is in.
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

    /// Bytes that were ever committed here. Pairs with the additions to it: what it counts is seen
    /// by who then looks.
    fn committed(self, memory: &mut impl RingMemory) -> u64 {
        self.load(memory, offset_of!(LttSubbuf, committed))
    }

    /// Is what is there in the header's place what stands for a page that there was no memory for?
    /// No writer stores these words: they are no position.
    fn is_lost(self, memory: &mut impl RingMemory) -> bool {
        [
            offset_of!(LttSubbuf, position),
            offset_of!(LttSubbuf, contiguous),
        ]
        .into_iter()
        .all(|field| self.load(memory, field) == LTT_LOST_WORD)
    }

    /// Was the header of this round stored? Pairs with the stores of its last words.
    fn is_begun(self, memory: &mut impl RingMemory) -> bool {
        let contiguous = self.contiguous(memory);
        contiguous > self.start
            && contiguous <= self.end()
            && self.load(memory, offset_of!(LttSubbuf, position)) == self.start
    }

    /// Up to where everything is committed, if the header is that of this round. Pairs with the
    /// stores of it: everything below it is seen by who then looks.
    fn contiguous(self, memory: &mut impl RingMemory) -> u64 {
        self.load(memory, offset_of!(LttSubbuf, contiguous)) & !7
    }

    fn decision(self, memory: &mut impl RingMemory) -> Decision {
        // The lower half: the upper one is for writers only.
        let word = self.load(memory, offset_of!(LttSubbuf, busy)) as u32;
        // Rounds are counted modulo 2^31.
        let lap = (self.start / self.geometry.ring_size() + 1) as u32;
        let said = word & !LTT_PLACE_TAKEN;
        if said != lap << LTT_PLACE_LAP_SHIFT {
            Decision::None
        } else if word & LTT_PLACE_TAKEN != 0 {
            Decision::Taken
        } else {
            Decision::PassedOver
        }
    }

    /// Was the sub-buffer begun for which `head` left this one?
    fn is_next_begun(self, memory: &mut impl RingMemory, head: u64) -> bool {
        let mut start = self.end();
        while start < head {
            let next = Self::of(self.geometry, start);
            if next.decision(memory) != Decision::PassedOver {
                return next.is_begun(memory);
            }
            start = next.end();
        }
        false
    }

    /// What can be read from `position` on, below `head`?
    pub(super) fn look(
        self,
        memory: &mut impl RingMemory,
        position: u64,
        head: u64,
        patience: Patience,
    ) -> Look {
        let limit = self.end().min(head);
        if self.is_lost(memory) {
            return Look::Lost;
        }
        if !self.is_begun(memory) {
            return if self.decision(memory) == Decision::PassedOver {
                Look::PassedOver
            } else if patience.waits_at(position) {
                Look::Wait
            } else {
                let committed = self.committed(memory);
                let of_round = committed % self.geometry.subbuf_size();
                self.remains(memory, head, committed, of_round, false)
            };
        }
        let contiguous = self.contiguous(memory);
        // If nothing was reserved between two looks at `head`, and between them as much was
        // committed as was reserved, then all of it was.
        let reserved = memory.positions().head;
        let committed = self.committed(memory);
        let base = self.load(memory, offset_of!(LttSubbuf, base));
        let of_round = committed.wrapping_sub(base);
        let whole = of_round == self.geometry.subbuf_size()
            || reserved <= self.end()
                && reserved.wrapping_sub(self.start) == of_round
                && memory.positions().head == reserved;
        if whole {
            return Look::Whole(limit);
        }
        if patience != Patience::Last {
            let up_to = contiguous.min(limit);
            if up_to > position {
                return Look::Whole(up_to);
            }
            if patience.waits_at(position) {
                return Look::Wait;
            }
        }
        self.remains(memory, head, committed, of_round, true)
    }

    fn remains(
        self,
        memory: &mut impl RingMemory,
        head: u64,
        committed: u64,
        of_round: u64,
        begun: bool,
    ) -> Look {
        let limit = self.end().min(head);
        Look::Broken(Remains {
            place: self,
            limit,
            committed,
            begun,
            uncommitted: (limit - self.start).checked_sub(of_round),
            pad_may_lack: head > self.end() && !self.is_next_begun(memory, head),
        })
    }
}
