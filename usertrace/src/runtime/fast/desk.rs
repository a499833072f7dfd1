//! What the daemons write down for each other, so that each can go on where another one was killed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::header::PROCESSES;
use crate::ctf::RingState;

/// At the start of the desk.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Desk {
    /// For each slot, the id of a process that is gone: the guardian says so, and the worker reads the rest, if the
    /// slot is still that process's. 0: none.
    pub(super) gone: [AtomicU32; PROCESSES],
    /// Not 0: the worker is to end when all is written.
    pub(super) finish: AtomicU32,
    /// How often in a row a worker was replaced that had done nothing.
    pub(super) failures: AtomicU32,
    /// Process ids: the guardian's, the worker's.
    pub(super) pids: [AtomicU32; 2],
}

/// What is noted of one slot, in front of its rings' ledgers.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct SlotDesk {
    /// Not 0: the trace has been begun, with this UUID.
    begun: AtomicU64,
    uuid: [AtomicU64; 2],
    /// The process in the slot.
    pub(super) process: Begun,
}

/// Which process has an id, as ids are used again.
///
/// The id is part of it: the guardian may note this of a process whose slot the worker has given to another one
/// meanwhile.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Begun(AtomicU64);

impl Begun {
    /// Bits for a process id: PID_MAX_LIMIT is 2^22 (Linux, include/linux/threads.h).
    const PID_BITS: u32 = 22;

    /// Is this the process that was seen first with this id? `ticks`: from boot to its start, 100 a second; 0: that is
    /// not known.
    pub(super) fn is_same(&self, pid: u32, ticks: u64) -> bool {
        let known = self.0.load(Ordering::Relaxed);
        if ticks == 0 {
            return true;
        }
        let now = ticks << Self::PID_BITS | u64::from(pid) & ((1 << Self::PID_BITS) - 1);
        if (known ^ now) & ((1 << Self::PID_BITS) - 1) == 0 && known != 0 {
            return known == now;
        }
        self.0.store(now, Ordering::Relaxed);
        true
    }
}

/// Bytes for a slot with so many rings.
pub(super) fn slot_len(nr_rings: u32) -> usize {
    size_of::<SlotDesk>() + nr_rings as usize * size_of::<Ledger>()
}

impl SlotDesk {
    /// The UUID of the trace, if that was begun.
    pub(super) fn uuid(&self) -> Option<[u8; 16]> {
        (self.begun.load(Ordering::Acquire) != 0).then(|| {
            let mut uuid = [0; 16];
            for (bytes, word) in uuid.chunks_exact_mut(8).zip(&self.uuid) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            uuid
        })
    }

    /// Notes that the trace begins.
    pub(super) fn begin(&self, uuid: [u8; 16]) {
        for (word, bytes) in self.uuid.iter().zip(uuid.chunks_exact(8)) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        // Pairs with the load in `uuid`.
        self.begun.store(1, Ordering::Release);
    }
}

/// How far a ring was read and written: two copies, and which one holds.
///
/// A daemon may be killed at any instruction, and the next one must find what the last one finished. So a new state is
/// written beside the one that holds, and one store makes it the one that holds.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Ledger {
    /// The last bit says which copy.
    turn: AtomicU64,
    copies: [[AtomicU64; 1 + RingState::WORDS]; 2],
}

/// What a [`Ledger`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Everything in the ring below this is in the file, or was told to be lost.
    pub(super) position: u64,
    pub(super) state: RingState,
}

impl Ledger {
    pub(super) fn load(&self) -> Page {
        // Pairs with the store in `store`.
        let turn = self.turn.load(Ordering::Acquire);
        let copy = &self.copies[(turn & 1) as usize];
        let [position, state @ ..] = copy.each_ref().map(|word| word.load(Ordering::Relaxed));
        Page {
            position,
            state: RingState::from_words(&state),
        }
    }

    pub(super) fn store(&self, page: &Page) {
        let words = std::iter::once(page.position).chain(page.state.to_words());
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        for (at, word) in self.copies[(turn & 1) as usize].iter().zip(words) {
            at.store(word, Ordering::Relaxed);
        }
        // The copy is whole before it holds: pairs with the load in `load`, in a process that comes later.
        self.turn.store(turn, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctf::StreamState;

    #[test]
    fn another_process_with_the_id_is_told_apart() {
        // SAFETY: zeros are nothing that was seen yet: all is atomic.
        let begun: Begun = unsafe { std::mem::zeroed() };
        assert!(begun.is_same(77, 1000));
        assert!(begun.is_same(77, 1000));
        assert!(!begun.is_same(77, 1001));
        assert!(begun.is_same(77, 0));
        // What was noted of the one that had the slot before says nothing about the next one.
        assert!(begun.is_same(78, 2000));
        assert!(!begun.is_same(78, 1000));
        let largest = (1 << Begun::PID_BITS) - 1;
        assert!(begun.is_same(largest, 1 << 40));
        assert!(!begun.is_same(largest, 1 << 41));
    }

    #[test]
    fn what_was_noted_is_there_until_something_newer_is_whole() {
        // SAFETY: zeros are a ledger: all is atomic.
        let ledger: Ledger = unsafe { std::mem::zeroed() };
        assert_eq!(ledger.load(), Page::default());
        let stream = StreamState {
            written: 1,
            packets: 2,
            discarded_written: 3,
            discarded: 4,
            time: 5,
            gap: true,
        };
        let page = Page {
            position: 8,
            state: RingState {
                stream: Some(stream),
                lost: 6,
                tid: 7,
                begin: 9,
            },
        };
        ledger.store(&page);
        assert_eq!(ledger.load(), page);
        // A daemon that was killed while it wrote the next one.
        let turn = ledger.turn.load(Ordering::Relaxed);
        ledger.copies[(turn + 1) as usize & 1][0].store(77, Ordering::Relaxed);
        assert_eq!(ledger.load(), page);
        let next = Page {
            position: 9,
            ..page
        };
        ledger.store(&next);
        assert_eq!(ledger.load(), next);
    }
}
