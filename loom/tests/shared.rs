//! Models of the shared protocol (D2), with the writer's own code, in rings of a few words.
//!
//! Each model is small, so that loom can finish it. The ring is brought into an interesting state
//! before the threads are started. Most models limit how often a thread may be preempted.

// The file of another crate, because the protocol is private to the library: it is public for these
// models alone. `Word` lets it run on loom's atomics.
#[path = "../../usertrace/src/writer/reserve_commit/protocol.rs"]
#[allow(dead_code)]
mod protocol;

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use loom::thread;
use protocol::{
    HEADER, LostError, RECORD_HEADER, Ring as _, WaitOutcome, Word, reserve, try_write, write,
};
use usertrace_sys::uapi::{LTT_ID_LONG, LTT_ID_PAD, LTT_LONG_DONE, LTT_LONG_LEN_MASK, LttSubbuf};

#[derive(Debug, Default)]
struct Cell(AtomicU64);

impl Word for Cell {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// A header, and room for four records without a payload.
const SUBBUF: u64 = HEADER + 64;

#[derive(Debug)]
struct Model {
    head: Cell,
    lost: Cell,
    time: Cell,
    consumed: Cell,
    words: Vec<Cell>,
    overwrites: bool,
    /// Whether the ring stopped overwriting, if it can.
    stopped: Option<AtomicBool>,
    /// Not part of the model: it advances in the order in which loom runs threads.
    clock: std::sync::atomic::AtomicU64,
}

impl Model {
    fn new(subbufs: u64, overwrites: bool) -> Arc<Self> {
        Arc::new(Self::ring(subbufs, overwrites))
    }

    /// A ring that overwrites until [`stop`](Self::stop).
    fn new_that_stops(subbufs: u64) -> Arc<Self> {
        Arc::new(Self {
            stopped: Some(AtomicBool::new(false)),
            ..Self::ring(subbufs, true)
        })
    }

    fn ring(subbufs: u64, overwrites: bool) -> Self {
        Self {
            head: Cell::default(),
            lost: Cell::default(),
            time: Cell::default(),
            consumed: Cell::default(),
            words: (0..subbufs * SUBBUF / 8).map(|_| Cell::default()).collect(),
            overwrites,
            stopped: None,
            clock: 1.into(),
        }
    }

    /// Makes the ring stop overwriting.
    fn stop(&self) {
        self.stopped
            .iter()
            .for_each(|stopped| stopped.store(true, Ordering::Relaxed));
    }

    /// Writes a record as events do: by the fast path, or else by the slow one.
    fn put(&self, id: u16, payload: &[u64]) -> Result<(), LostError> {
        try_write(self, id, payload).or_else(|_| write(self, id, payload))
    }

    fn load(&self, position: u64) -> u64 {
        (&self).word(position).load(Ordering::Acquire)
    }

    fn field(&self, subbuf: u64, field: usize) -> u64 {
        self.load(subbuf + field as u64)
    }
}

impl protocol::Ring for &Model {
    type Word = Cell;

    fn head(&self) -> &Cell {
        &self.head
    }

    fn lost(&self) -> &Cell {
        &self.lost
    }

    fn time(&self) -> &Cell {
        &self.time
    }

    fn consumed(&self) -> &Cell {
        &self.consumed
    }

    fn words(&self, position: u64, len: u64) -> &[Cell] {
        let first = (position / 8) as usize % self.words.len();
        &self.words[first..first + len as usize]
    }

    fn subbuf_size(&self) -> u64 {
        SUBBUF
    }

    fn ring_size(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn overwrites(&self) -> bool {
        let stopped = |stopped: &AtomicBool| stopped.load(Ordering::Relaxed);
        self.overwrites && !self.stopped.as_ref().is_some_and(stopped)
    }

    fn writer(&self) -> u32 {
        7
    }

    fn cycles(&self, _head: u64) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn head_moved(&self, _head: u64) {}

    fn subbuf_begins(&self, _: u64) {}

    fn subbuf_filled(&self) {}

    fn wait(&self, _consumed: u64, _quiescent: bool) -> WaitOutcome {
        WaitOutcome::NotAllowed
    }
}

/// Runs a model with a limit of preemptions in each execution.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Copies words of a sub-buffer as a reader does.
fn copy(ring: &Model, from: u64, to: u64) -> Vec<u64> {
    (from..to)
        .step_by(8)
        .map(|position| ring.word(position).load(Ordering::Relaxed))
        .collect()
}

/// The position up to which a sub-buffer can be read, by the rule for readers of live rings.
fn readable(ring: &Model, subbuf: u64) -> u64 {
    let position = ring.field(subbuf, offset_of!(LttSubbuf, position));
    let contiguous = ring.field(subbuf, offset_of!(LttSubbuf, contiguous));
    if position != subbuf || contiguous == 0 {
        return subbuf;
    }
    assert!(subbuf < contiguous && contiguous <= subbuf + SUBBUF);
    let head = ring.head.load(Ordering::Acquire);
    let committed = ring.field(subbuf, offset_of!(LttSubbuf, committed));
    let base = ring.field(subbuf, offset_of!(LttSubbuf, base));
    let there = committed - base;
    if there == SUBBUF {
        subbuf + SUBBUF
    } else if there == head - subbuf && ring.head.load(Ordering::Relaxed) == head {
        head
    } else {
        contiguous
    }
}

/// The ids of a sub-buffer's records, which must all be complete. `words` begin at its start.
fn parse(subbuf: u64, words: &[u64]) -> Vec<u16> {
    let mut ids = Vec::new();
    let Some(&position) = words.first() else {
        return ids;
    };
    assert_eq!(position, subbuf, "another sub-buffer's header");
    let mut time = words[offset_of!(LttSubbuf, time) / 8];
    let mut rest = &words[HEADER as usize / 8..];
    while let [first, behind @ ..] = rest {
        if *first as u16 == LTT_ID_PAD {
            break;
        }
        assert_eq!(*first as u16, LTT_ID_LONG, "no record");
        assert!(time <= first >> 16, "the time goes back");
        time = first >> 16;
        let second = behind[0];
        let (id, len) = ((second >> 32) as u16, (second & LTT_LONG_LEN_MASK) as usize);
        assert_eq!(
            second & !(LTT_LONG_LEN_MASK | 0xffff << 32),
            LTT_LONG_DONE,
            "not done"
        );
        for &word in &rest[RECORD_HEADER as usize / 8..len / 8] {
            assert_eq!(word, payload(id), "another record's payload");
        }
        ids.push(id);
        rest = &rest[len / 8..];
    }
    ids
}

/// Each word of the payload of a record with this id.
fn payload(id: u16) -> u64 {
    0xfeed_0000 | u64::from(id)
}

/// The ids in the ring from a position on, after all writers have ended.
fn all(ring: &Model, from: u64) -> Vec<u16> {
    let head = ring.head.load(Ordering::Acquire);
    let mut ids = Vec::new();
    for subbuf in (from..head).step_by(SUBBUF as usize) {
        if ring.field(subbuf, offset_of!(LttSubbuf, position)) != subbuf {
            assert!(head > subbuf + SUBBUF, "passed over, and nothing behind it");
            continue;
        }
        let end = head.min(subbuf + SUBBUF);
        assert_eq!(readable(ring, subbuf), end, "somebody is still there");
        ids.extend(parse(subbuf, &copy(ring, subbuf, end)));
    }
    ids
}

fn sorted(mut ids: Vec<u16>) -> Vec<u16> {
    ids.sort_unstable();
    ids
}

/// Two writers in a fresh ring: either may begin the sub-buffer.
#[test]
fn two_writers_begin_a_sub_buffer() {
    check(3, || {
        let ring = Model::new(2, false);
        let other = thread::spawn({
            let ring = ring.clone();
            move || ring.put(1, &[payload(1)]).unwrap()
        });
        ring.put(2, &[]).unwrap();
        other.join().unwrap();
        assert_eq!(sorted(all(&ring, 0)), [1, 2]);
    });
}

/// Two writers at the end of a sub-buffer, which has room for one of them.
#[test]
fn two_writers_at_the_end_of_a_sub_buffer() {
    check(3, || {
        let ring = Model::new(2, false);
        ring.put(3, &[payload(3); 4]).unwrap();
        let other = thread::spawn({
            let ring = ring.clone();
            move || ring.put(1, &[payload(1)]).unwrap()
        });
        ring.put(2, &[]).unwrap();
        other.join().unwrap();
        assert_eq!(sorted(all(&ring, 0)), [1, 2, 3]);
    });
}

/// A writer, and one that a signal handler interrupts with another record.
#[test]
fn a_writer_and_a_nested_one() {
    check(3, || {
        let ring = Model::new(2, false);
        ring.put(4, &[]).unwrap();
        let other = thread::spawn({
            let ring = ring.clone();
            move || ring.put(1, &[]).unwrap()
        });
        let outer = reserve(&*ring, 2, 1).unwrap();
        ring.put(3, &[]).unwrap();
        outer.payload()[0].store(payload(2), Ordering::Relaxed);
        outer.complete();
        other.join().unwrap();
        let ids = all(&ring, 0);
        let at = |id| ids.iter().position(|&i| i == id);
        assert!(at(2) < at(3), "reserved behind the one that it interrupts");
        assert_eq!(sorted(ids), [1, 2, 3, 4]);
    });
}

/// Two writers, and a reader that may read only what is committed.
#[test]
fn a_reader_of_a_sub_buffer_that_is_being_written() {
    check(2, || {
        let ring = Model::new(2, false);
        ring.put(3, &[]).unwrap();
        let writers = [1, 2].map(|id| {
            let ring = ring.clone();
            thread::spawn(move || ring.put(id, &[]).unwrap())
        });
        let to = readable(&ring, 0);
        let ids = parse(0, &copy(&ring, 0, to));
        for writer in writers {
            writer.join().unwrap();
        }
        assert!(all(&ring, 0).starts_with(&ids));
    });
}

/// A reader during the begin of a sub-buffer whose memory held an older one.
#[test]
fn a_reader_of_a_reused_place() {
    check(3, || {
        let ring = Model::new(2, false);
        for _ in 0..2 {
            ring.put(3, &[payload(3); 6]).unwrap();
        }
        // The first sub-buffer is consumed.
        ring.consumed.store(SUBBUF, Ordering::Release);
        let writer = thread::spawn({
            let ring = ring.clone();
            move || {
                ring.put(1, &[]).unwrap();
                ring.put(2, &[payload(2)]).unwrap();
            }
        });
        let to = readable(&ring, 2 * SUBBUF);
        let ids = parse(2 * SUBBUF, &copy(&ring, 2 * SUBBUF, to));
        assert!([1, 2].starts_with(&ids));
        writer.join().unwrap();
        assert_eq!(all(&ring, 2 * SUBBUF), [1, 2]);
    });
}

/// A reader that consumes while a writer wants the room: what it has read stays valid.
#[test]
fn a_reader_that_makes_room() {
    check(3, || {
        let ring = Model::new(2, false);
        for _ in 0..2 {
            ring.put(3, &[payload(3); 6]).unwrap();
        }
        let writer = thread::spawn({
            let ring = ring.clone();
            move || ring.put(1, &[]).is_ok()
        });
        let to = readable(&ring, 0);
        assert_eq!(parse(0, &copy(&ring, 0, to)), [3]);
        ring.consumed.store(SUBBUF, Ordering::Release);
        let written = writer.join().unwrap();
        let lost = ring.lost.load(Ordering::Relaxed);
        assert_eq!(lost, u64::from(!written));
        assert_eq!(all(&ring, 2 * SUBBUF), if written { &[1][..] } else { &[] });
    });
}

/// A reader copies the oldest sub-buffer of a ring that overwrites, and then checks whether it was
/// overtaken.
#[test]
fn a_reader_of_a_ring_that_overwrites() {
    check(3, || {
        let ring = Model::new(2, true);
        for id in [1, 2] {
            ring.put(id, &[payload(id); 6]).unwrap();
        }
        let writer = thread::spawn({
            let ring = ring.clone();
            move || {
                ring.put(3, &[payload(3)]).unwrap();
                ring.put(4, &[]).unwrap();
            }
        });
        // The second word, and some of the payload.
        let words = copy(&ring, HEADER + 8, HEADER + 32);
        fence(Ordering::Acquire);
        let head = ring.head.load(Ordering::Relaxed);
        if head <= 2 * SUBBUF {
            assert!(words[0] & LTT_LONG_DONE != 0);
            assert_eq!(words[1..], [payload(1); 2]);
        }
        writer.join().unwrap();
        assert_eq!(all(&ring, SUBBUF), [2, 3, 4]);
    });
}

/// The same with two writers in the place that is overwritten, only one of which begins the
/// sub-buffer.
#[test]
fn a_reader_is_overtaken_by_two_writers() {
    check(2, || {
        let ring = Model::new(2, true);
        for id in [1, 2] {
            ring.put(id, &[payload(id); 6]).unwrap();
        }
        let writers = [3, 4].map(|id| {
            let ring = ring.clone();
            thread::spawn(move || ring.put(id, &[]).unwrap())
        });
        let words = copy(&ring, HEADER + 16, HEADER + 40);
        fence(Ordering::Acquire);
        let head = ring.head.load(Ordering::Relaxed);
        if head <= 2 * SUBBUF {
            assert_eq!(words, [payload(1); 3]);
        }
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(sorted(all(&ring, SUBBUF)), [2, 3, 4]);
    });
}

/// A ring stops overwriting while two writers are about to overwrite, and a reader copies the
/// oldest sub-buffer. The copy and all later sub-buffers are valid unless the head moved. After the
/// reader has consumed everything, the ring accepts records again.
///
/// Requirements: E3
#[test]
fn ring_stops_overwriting() {
    check(2, || {
        let ring = Model::new_that_stops(2);
        for id in [1, 2] {
            ring.put(id, &[payload(id); 6]).unwrap();
        }
        let writers = [3, 4].map(|id| {
            let ring = ring.clone();
            thread::spawn(move || ring.put(id, &[payload(id); 2]).map(|()| id))
        });
        ring.stop();
        let words = copy(&ring, HEADER + 16, HEADER + 32);
        fence(Ordering::Acquire);
        if ring.head.load(Ordering::Relaxed) <= 2 * SUBBUF {
            assert_eq!(words, [payload(1); 2]);
        }
        let mut ids: Vec<_> = writers
            .into_iter()
            .filter_map(|writer| writer.join().unwrap().ok())
            .collect();
        assert_eq!(ring.lost.load(Ordering::Relaxed), 2 - ids.len() as u64);
        ids.sort_unstable();
        let head = ring.head.load(Ordering::Relaxed);
        let oldest = (head - 1) / SUBBUF * SUBBUF - SUBBUF;
        let mut kept = vec![1, 2];
        kept.drain(..oldest as usize / SUBBUF as usize);
        kept.extend(&ids);
        assert_eq!(sorted(all(&ring, oldest)), kept);
        // The ring is full, however far the head is beyond the consumed position.
        assert!(ring.put(5, &[payload(5); 6]).is_err());
        ring.consumed.store(head, Ordering::Release);
        ring.put(6, &[payload(6); 6]).unwrap();
        assert_eq!(all(&ring, oldest + SUBBUF).last(), Some(&6));
    });
}

/// A writer that slept in the next place leaves it, while two others are about to use or skip it.
#[test]
fn a_writer_leaves_a_place_while_two_others_come() {
    check(3, || {
        let ring = Model::new(4, true);
        let sleeper = ring.clone();
        let sleeping = reserve(&*sleeper, 9, 6).unwrap();
        for id in [1, 2, 3] {
            ring.put(id, &[payload(id); 6]).unwrap();
        }
        let writer = thread::spawn({
            let ring = ring.clone();
            move || ring.put(4, &[payload(4); 6]).unwrap()
        });
        sleeping.payload()[0].store(payload(9), Ordering::Relaxed);
        sleeping.complete();
        ring.put(5, &[payload(5); 6]).unwrap();
        writer.join().unwrap();
        // Each takes a place of its own, and from now on all places are quiescent.
        let head = ring.head.load(Ordering::Relaxed);
        assert_eq!(sorted(all(&ring, 4 * SUBBUF)), [4, 5]);
        for id in [6, 7, 8] {
            ring.put(id, &[payload(id); 6]).unwrap();
        }
        assert_eq!(ring.head.load(Ordering::Relaxed), head + 3 * SUBBUF);
        assert_eq!(all(&ring, head), [6, 7, 8]);
    });
}

/// A writer is about to store a header while another one comes around the ring.
#[test]
#[ignore = "full tier: long"]
fn a_lap_while_a_sub_buffer_is_begun() {
    check(3, || {
        let ring = Model::new(2, true);
        for id in [1, 2] {
            ring.put(id, &[payload(id); 6]).unwrap();
        }
        let writer = thread::spawn({
            let ring = ring.clone();
            move || ring.put(3, &[payload(3); 6])
        });
        // A record is lost if the other writer is inside the only place that could be begun.
        let results = [4, 5].map(|id| ring.put(id, &[payload(id); 6]));
        let lost = results.into_iter().chain([writer.join().unwrap()]);
        let lost = lost.filter(Result::is_err).count() as u64;
        assert_eq!(ring.lost.load(Ordering::Relaxed), lost);
        let head = ring.head.load(Ordering::Relaxed);
        assert_eq!(head % SUBBUF, 0);
        let newest = all(&ring, head - SUBBUF);
        assert!(newest.len() <= 1);
        // All places are quiescent, so none is skipped.
        for id in [6, 7] {
            ring.put(id, &[payload(id); 6]).unwrap();
        }
        assert_eq!(all(&ring, head), [6, 7]);
    });
}
