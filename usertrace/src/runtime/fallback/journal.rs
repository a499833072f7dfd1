//! What the daemons write down for each other, so that each can go on where another one was killed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use usertrace_ctf::recording::{Chunk, TraceLocation};
use usertrace_ctf::{RingCounts, RingState};

use super::header::PROCESSES;

/// At the start of the journal.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Journal {
    /// For each slot, the id of a process that is gone: the watchdog says so, and the worker reads
    /// the rest, if the slot is still that process's. 0: none.
    pub(super) gone: [AtomicU32; PROCESSES],
    /// For each slot, the id of a process whose trace is complete, so that the slot is only to be
    /// wiped. 0: none. A worker that is killed while it wipes leaves a part of the slot, of which
    /// the next one would make another trace.
    pub(super) complete: [AtomicU32; PROCESSES],
    /// Not 0: the worker is to end when all is written.
    pub(super) finish: AtomicU32,
    /// How often in a row a worker was replaced that had done nothing.
    pub(super) failures: AtomicU32,
    /// Process ids: the watchdog's, the worker's.
    pub(super) pids: [AtomicU32; 2],
}

/// What is noted of one slot, in front of its rings' checkpoints.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct SlotJournal {
    trace: Copies<{ Trace::WORDS }>,
    /// The process in the slot.
    pub(super) process: Begun,
}

/// A trace that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) uuid: [u8; 16],
    /// Where it is: not nowhere.
    pub(super) place: TraceLocation,
}

impl Trace {
    const WORDS: usize = 5;

    fn to_words(self) -> [u64; Self::WORDS] {
        let uuid = u128::from_ne_bytes(self.uuid);
        let begin = match self.place {
            TraceLocation::Chunk(chunk) => chunk.begin,
            TraceLocation::Directory | TraceLocation::Nowhere => 0,
        };
        let (low, high) = (uuid as u64, (uuid >> 64) as u64);
        [1, low, high, self.place.number(), begin]
    }

    /// Nothing if these are the words of none.
    fn from_words(words: [u64; Self::WORDS]) -> Option<Self> {
        let [begun, low, high, number, begin] = words;
        let uuid = u128::from(low) | u128::from(high) << 64;
        let place = match number {
            0 => TraceLocation::Directory,
            number => TraceLocation::Chunk(Chunk { number, begin }),
        };
        (begun != 0).then(|| Self {
            uuid: uuid.to_ne_bytes(),
            place,
        })
    }
}

/// Which process has an id, as ids are used again.
///
/// The id is part of it: the watchdog may note this of a process whose slot the worker has given to
/// another one meanwhile.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Begun(AtomicU64);

impl Begun {
    /// Bits for a process id: PID_MAX_LIMIT is 2^22 (Linux, include/linux/threads.h).
    const PID_BITS: u32 = 22;

    /// Is this the process that was seen first with this id? `ticks`: from boot to its start, 100 a
    /// second; 0: that is not known.
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
    size_of::<SlotJournal>() + nr_rings as usize * size_of::<RingCheckpoint>()
}

impl SlotJournal {
    /// The trace, if one was begun and the process has not left it.
    pub(super) fn trace(&self) -> Option<Trace> {
        Trace::from_words(self.trace.load())
    }

    /// Notes that a trace begins.
    pub(super) fn begin(&self, trace: Trace) {
        self.trace.store(trace.to_words());
    }

    /// Notes that the trace is complete, and what comes belongs into another one.
    pub(super) fn end(&self) {
        self.trace.store([0; Trace::WORDS]);
    }
}

/// Words of which there are two copies, and which one holds.
///
/// A daemon may be killed at any instruction, and the next one must find what the last one
/// finished. So a new state is written beside the one that holds, and one store makes it the one
/// that holds.
#[derive(Debug)]
#[repr(C, align(64))]
struct Copies<const WORDS: usize> {
    /// The last bit says which copy.
    turn: AtomicU64,
    copies: [[AtomicU64; WORDS]; 2],
}

impl<const WORDS: usize> Copies<WORDS> {
    fn load(&self) -> [u64; WORDS] {
        // Pairs with the store in `store`.
        let turn = self.turn.load(Ordering::Acquire);
        let copy = &self.copies[(turn & 1) as usize];
        copy.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    fn store(&self, words: [u64; WORDS]) {
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        for (at, word) in self.copies[(turn & 1) as usize].iter().zip(words) {
            at.store(word, Ordering::Relaxed);
        }
        // The copy is whole before it holds: pairs with the load in `load`, in a process that comes
        // later.
        self.turn.store(turn, Ordering::Release);
    }
}

/// How far a ring was read and written.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct RingCheckpoint(Copies<{ Page::WORDS }>);

/// What a [`RingCheckpoint`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Everything in the ring below this is in the file, or was told to be lost.
    pub(super) position: u64,
    /// The number of the chunk with the stream; 0: there are no chunks.
    pub(super) chunk: u64,
    pub(super) state: RingState,
    pub(super) counted: RingCounts,
}

impl Page {
    const STATE: usize = 2;
    const COUNTED: usize = Self::STATE + RingState::WORDS;
    const WORDS: usize = Self::COUNTED + RingCounts::WORDS;

    /// Where the stream stands in this chunk.
    pub(super) fn state(&self, chunk: u64) -> RingState {
        self.state.in_chunk(self.chunk == chunk)
    }
}

impl RingCheckpoint {
    pub(super) fn load(&self) -> Page {
        let words = self.0.load();
        let (mut state, mut counted) = ([0; RingState::WORDS], [0; RingCounts::WORDS]);
        state.copy_from_slice(&words[Page::STATE..Page::COUNTED]);
        counted.copy_from_slice(&words[Page::COUNTED..]);
        Page {
            position: words[0],
            chunk: words[1],
            state: RingState::from_words(&state),
            counted: RingCounts::from_words(&counted),
        }
    }

    pub(super) fn store(&self, page: &Page) {
        let mut words = [0; Page::WORDS];
        (words[0], words[1]) = (page.position, page.chunk);
        words[Page::STATE..Page::COUNTED].copy_from_slice(&page.state.to_words());
        words[Page::COUNTED..].copy_from_slice(&page.counted.to_words());
        self.0.store(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usertrace_ctf::StreamState;

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
        // SAFETY: zeros are a checkpoint: all is atomic.
        let checkpoint: RingCheckpoint = unsafe { std::mem::zeroed() };
        assert_eq!(checkpoint.load(), Page::default());
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
            chunk: 3,
            state: RingState {
                stream: Some(stream),
                lost: 6,
                tid: 7,
                begin: 9,
            },
            counted: RingCounts {
                span: Some((10, 11)),
                ..RingCounts::default()
            },
        };
        checkpoint.store(&page);
        assert_eq!(checkpoint.load(), page);
        // A daemon that was killed while it wrote the next one.
        let turn = checkpoint.0.turn.load(Ordering::Relaxed);
        checkpoint.0.copies[(turn + 1) as usize & 1][0].store(77, Ordering::Relaxed);
        assert_eq!(checkpoint.load(), page);
        let next = Page {
            position: 9,
            ..page
        };
        checkpoint.store(&next);
        assert_eq!(checkpoint.load(), next);
        // Of the stream in another chunk, nothing holds but whose it is and what it lost.
        assert_eq!(next.state(3), next.state);
        let stream = None;
        assert_eq!(
            next.state(4),
            RingState {
                stream,
                ..next.state
            }
        );
    }

    #[test]
    fn a_trace_is_noted_as_a_whole() {
        // SAFETY: zeros are a slot without a trace: all is atomic.
        let journal: SlotJournal = unsafe { std::mem::zeroed() };
        assert_eq!(journal.trace(), None);
        let chunk = TraceLocation::Chunk(Chunk {
            number: 3,
            begin: 7,
        });
        for place in [TraceLocation::Directory, chunk] {
            let uuid = std::array::from_fn(|n| n as u8 ^ 0x5a);
            let trace = Trace { uuid, place };
            journal.begin(trace);
            assert_eq!(journal.trace(), Some(trace));
        }
        journal.end();
        assert_eq!(journal.trace(), None);
    }
}
