//! The journal: shared state of the daemons, with which a daemon goes on where another was killed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use usertrace_ctf::recording::{Chunk, TraceLocation};
use usertrace_ctf::{RingCounts, RingState};

use super::header::PROCESSES;

/// The start of the journal.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Journal {
    /// For each slot, the id of a process that has ended; 0: none. The watchdog stores it, and the
    /// worker reads the rest if the slot is still that process's.
    pub(super) gone: [AtomicU32; PROCESSES],
    /// For each slot, the id of a process whose trace is complete; 0: none. The slot only has to be
    /// wiped. Without this, a worker that is killed while it wipes would leave a part of the slot,
    /// from which the next worker would make another trace.
    pub(super) complete: [AtomicU32; PROCESSES],
    /// Not 0: the worker has to end when all is written.
    pub(super) finish: AtomicU32,
    /// How many daemons in a row failed before a worker read anything.
    pub(super) failures: AtomicU32,
    /// Process ids of the watchdog and the worker.
    pub(super) pids: [AtomicU32; 2],
}

/// The journal of one slot, in front of its rings' checkpoints.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct SlotJournal {
    trace: Copies<{ Trace::WORDS }>,
    /// The process in the slot.
    pub(super) process: StartId,
}

/// A trace that a worker has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) uuid: [u8; 16],
    /// The place with its files; never [`TraceLocation::Nowhere`].
    pub(super) place: TraceLocation,
}

impl Trace {
    const WORDS: usize = 5;

    /// The trace as words of the journal.
    fn to_words(self) -> [u64; Self::WORDS] {
        let uuid = u128::from_ne_bytes(self.uuid);
        let begin = match self.place {
            TraceLocation::Chunk(chunk) => chunk.begin,
            TraceLocation::Directory | TraceLocation::Nowhere => 0,
        };
        let (low, high) = (uuid as u64, (uuid >> 64) as u64);
        [1, low, high, self.place.number(), begin]
    }

    /// The inverse; none if the words are zeros.
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

/// A process id with the start time of its process, as ids are used again.
///
/// The watchdog may store it late, when the worker has given the slot to another process already.
/// So the id is part of it.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct StartId(AtomicU64);

impl StartId {
    /// Bits of a process id: PID_MAX_LIMIT is 2^22 (Linux, include/linux/threads.h).
    const PID_BITS: u32 = 22;

    /// Whether this is the process that was seen first with this id. `ticks`: its start, in
    /// hundredths of a second since boot; 0: not known.
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

/// Bytes of the journal of a slot with `nr_rings` rings and tables.
pub(super) fn slot_len(nr_rings: usize) -> usize {
    size_of::<SlotJournal>() + nr_rings * size_of::<RingCheckpoint>()
}

impl SlotJournal {
    /// The current trace of the process, if there is one.
    pub(super) fn trace(&self) -> Option<Trace> {
        Trace::from_words(self.trace.load())
    }

    /// Stores that a trace begins.
    pub(super) fn begin(&self, trace: Trace) {
        self.trace.store(trace.to_words());
    }

    /// Stores that the trace is complete. Later events belong to another one.
    pub(super) fn end(&self) {
        self.trace.store([0; Trace::WORDS]);
    }
}

/// Words that are updated atomically: two copies, and a number that says which one is valid.
///
/// A daemon may be killed at any instruction, and the next one must find the last complete state.
/// So a daemon writes a new state to the other copy, and makes it valid by one store.
#[derive(Debug)]
#[repr(C, align(64))]
struct Copies<const WORDS: usize> {
    /// Number of updates. Its last bit is the index of the valid copy.
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
        // Release: the copy is complete before it is valid. Pairs with the load in `load`, in a
        // later process.
        self.turn.store(turn, Ordering::Release);
    }
}

/// Checkpoint of a ring: how far it was read, and the state of its stream.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct RingCheckpoint(Copies<{ Checkpoint::WORDS }>);

/// The contents of a [`RingCheckpoint`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// Everything in the ring below this is in the file, or was reported as lost.
    pub(super) position: u64,
    /// The number of the chunk with the stream; 0: there are no chunks.
    pub(super) chunk: u64,
    pub(super) state: RingState,
    pub(super) counted: RingCounts,
}

impl Checkpoint {
    const STATE: usize = 2;
    const COUNTED: usize = Self::STATE + RingState::WORDS;
    const WORDS: usize = Self::COUNTED + RingCounts::WORDS;

    /// The state of the stream in a chunk.
    pub(super) fn state(&self, chunk: u64) -> RingState {
        self.state.in_chunk(self.chunk == chunk)
    }
}

impl RingCheckpoint {
    pub(super) fn load(&self) -> Checkpoint {
        let words = self.0.load();
        let (mut state, mut counted) = ([0; RingState::WORDS], [0; RingCounts::WORDS]);
        state.copy_from_slice(&words[Checkpoint::STATE..Checkpoint::COUNTED]);
        counted.copy_from_slice(&words[Checkpoint::COUNTED..]);
        Checkpoint {
            position: words[0],
            chunk: words[1],
            state: RingState::from_words(&state),
            counted: RingCounts::from_words(&counted),
        }
    }

    pub(super) fn store(&self, page: &Checkpoint) {
        let mut words = [0; Checkpoint::WORDS];
        (words[0], words[1]) = (page.position, page.chunk);
        words[Checkpoint::STATE..Checkpoint::COUNTED].copy_from_slice(&page.state.to_words());
        words[Checkpoint::COUNTED..].copy_from_slice(&page.counted.to_words());
        self.0.store(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usertrace_ctf::StreamState;

    #[test]
    fn processes_with_the_same_id_are_distinguished() {
        // SAFETY: zeros are nothing that was seen yet: all is atomic.
        let start_id: StartId = unsafe { std::mem::zeroed() };
        assert!(start_id.is_same(77, 1000));
        assert!(start_id.is_same(77, 1000));
        assert!(!start_id.is_same(77, 1001));
        assert!(start_id.is_same(77, 0));
        // An entry of the process that had the slot before means nothing for the next one.
        assert!(start_id.is_same(78, 2000));
        assert!(!start_id.is_same(78, 1000));
        let largest = (1 << StartId::PID_BITS) - 1;
        assert!(start_id.is_same(largest, 1 << 40));
        assert!(!start_id.is_same(largest, 1 << 41));
    }

    #[test]
    fn a_checkpoint_is_valid_until_the_next_one_is_complete() {
        // SAFETY: zeros are a checkpoint: all is atomic.
        let checkpoint: RingCheckpoint = unsafe { std::mem::zeroed() };
        assert_eq!(checkpoint.load(), Checkpoint::default());
        let stream = StreamState {
            written: 1,
            packets: 2,
            discarded_written: 3,
            discarded: 4,
            time: 5,
            gap: true,
        };
        let page = Checkpoint {
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
        // A daemon is killed while it writes the next one.
        let turn = checkpoint.0.turn.load(Ordering::Relaxed);
        checkpoint.0.copies[(turn + 1) as usize & 1][0].store(77, Ordering::Relaxed);
        assert_eq!(checkpoint.load(), page);
        let next = Checkpoint {
            position: 9,
            ..page
        };
        checkpoint.store(&next);
        assert_eq!(checkpoint.load(), next);
        // In another chunk, only the thread and the lost events of the stream are still valid.
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
    fn traces_are_stored_and_loaded() {
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
