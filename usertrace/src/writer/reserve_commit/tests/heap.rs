//! Tests of the algorithm in rings on the heap: one thread that is interrupted before any of its
//! operations, and several threads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use usertrace_sys::uapi::{
    LTT_ID_LONG, LTT_ID_PAD, LTT_LONG_DONE, LTT_LONG_LEN_MASK, LTT_SUBBUF_MAGIC, LttSubbuf,
};

use super::super::protocol::{
    self, HEADER, LostError, RECORD_HEADER, Ring as _, WaitOutcome, Word, reserve, write,
};
use usertrace_testing::counts::counts;

thread_local! {
    /// Takes a snapshot of the ring before an operation. Operations of nested records count, too.
    static KILL: RefCell<Option<Interruption>> = const { RefCell::new(None) };
    /// The number of operations on words by this thread since the last reset.
    static STEPS: Cell<u64> = const { Cell::new(0) };
    /// Runs before an operation, in place of a signal handler or of another thread.
    static INTERRUPTION: RefCell<Option<Interruption>> = const { RefCell::new(None) };
}

struct Interruption {
    /// The number of the operation before which `what` runs.
    at: u64,
    what: Box<dyn FnOnce()>,
}

/// Runs `body`, and `what` before one of its operations. Returns the number of operations.
fn interrupted(at: u64, what: impl FnOnce() + 'static, body: impl FnOnce()) -> u64 {
    STEPS.set(0);
    INTERRUPTION.set(Some(Interruption {
        at,
        what: Box::new(what),
    }));
    body();
    INTERRUPTION.set(None);
    STEPS.get()
}

fn step() {
    let now = STEPS.get();
    STEPS.set(now + 1);
    let due = INTERRUPTION.with_borrow_mut(|interruption| interruption.take_if(|i| i.at == now));
    if let Some(due) = due {
        (due.what)();
    }
    let due = KILL.with_borrow_mut(|kill| {
        let left = &mut kill.as_mut()?.at;
        let now = *left == 0;
        *left = left.wrapping_sub(1);
        kill.take_if(|_| now)
    });
    if let Some(due) = due {
        (due.what)();
    }
}

/// A word that calls [`step`] before each operation, so that an interruption can run there.
#[derive(Debug, Default)]
struct Stepped(AtomicU64);

impl Word for Stepped {
    fn load(&self, order: Ordering) -> u64 {
        step();
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        step();
        self.0.store(value, order);
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        step();
        self.0.compare_exchange(current, new, success, failure)
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        step();
        self.0.fetch_add(value, order)
    }

    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

/// A ring on the heap.
#[derive(Debug)]
struct Heap {
    head: Stepped,
    lost: Stepped,
    time: Stepped,
    consumed: Stepped,
    words: Vec<Stepped>,
    subbuf_size: u64,
    overwrites: AtomicBool,
    /// The clock, which each reading increments.
    clock: AtomicU64,
    filled: AtomicU64,
    /// Whether there is a reader. If so, each wait of a writer consumes a sub-buffer.
    reader: AtomicBool,
    /// Number of waits while the sub-buffer to consume was not quiescent.
    in_the_way: AtomicU64,
}

impl Heap {
    /// Leaks the ring, so that interruptions can refer to it.
    fn new(subbuf_size: u64, subbuf_count: u64, overwrites: bool) -> &'static Self {
        let words = (subbuf_size * subbuf_count / 8) as usize;
        Box::leak(Box::new(Self {
            head: Stepped::default(),
            lost: Stepped::default(),
            time: Stepped::default(),
            consumed: Stepped::default(),
            words: (0..words).map(|_| Stepped::default()).collect(),
            subbuf_size,
            overwrites: overwrites.into(),
            clock: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            reader: AtomicBool::new(false),
            in_the_way: AtomicU64::new(0),
        }))
    }

    fn peek(&self, position: u64) -> u64 {
        self.words[(position as usize / 8) % self.words.len()]
            .0
            .load(Ordering::Acquire)
    }

    fn field(&self, subbuf: u64, offset: usize) -> u64 {
        self.peek(subbuf + offset as u64)
    }

    fn head_now(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    fn lost_now(&self) -> u64 {
        self.lost.0.load(Ordering::Relaxed)
    }

    fn consume(&self, position: u64) {
        self.consumed.0.store(position, Ordering::Release);
    }

    fn put(&'static self, id: u16, payload: &[u64]) -> Result<(), LostError> {
        write(self, id, payload)
    }
}

impl protocol::Ring for &'static Heap {
    type Word = Stepped;

    fn head(&self) -> &Stepped {
        &self.head
    }

    fn lost(&self) -> &Stepped {
        &self.lost
    }

    fn time(&self) -> &Stepped {
        &self.time
    }

    fn consumed(&self) -> &Stepped {
        &self.consumed
    }

    fn words(&self, position: u64, len: u64) -> &[Stepped] {
        let first = (position / 8) as usize % self.words.len();
        &self.words[first..first + len as usize]
    }

    fn subbuf_size(&self) -> u64 {
        self.subbuf_size
    }

    fn ring_size(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn overwrites(&self) -> bool {
        step();
        self.overwrites.load(Ordering::SeqCst)
    }

    fn writer(&self) -> u32 {
        7
    }

    fn cycles(&self, _head: u64) -> u64 {
        step();
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn head_moved(&self, _head: u64) {}

    fn subbuf_begins(&self, _: u64) {}

    fn subbuf_filled(&self) {
        self.filled.fetch_add(1, Ordering::SeqCst);
    }

    fn wait(&self, consumed: u64, quiescent: bool) -> WaitOutcome {
        self.in_the_way
            .fetch_add((!quiescent).into(), Ordering::SeqCst);
        assert_eq!(consumed, self.consumed.0.load(Ordering::Acquire));
        let there = self.reader.load(Ordering::SeqCst);
        if there {
            self.consume(consumed + self.subbuf_size);
            WaitOutcome::Retry
        } else {
            WaitOutcome::NotAllowed
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    id: u16,
    time: u64,
    payload: Vec<u64>,
}

/// The contents of a quiescent ring between two positions.
#[derive(Debug, Default)]
struct Decoded {
    records: Vec<Record>,
    /// Positions of skipped sub-buffers.
    passed: Vec<u64>,
    /// The full times in the headers.
    begun: Vec<u64>,
}

impl Decoded {
    fn numbers(&self) -> Vec<u64> {
        self.records
            .iter()
            .map(|record| record.payload[0])
            .collect()
    }
}

/// Decodes a quiescent ring, and checks the invariants that readers rely on.
fn decode(ring: &'static Heap, from: u64, to: u64) -> Decoded {
    let mut decoded = Decoded::default();
    let size = ring.subbuf_size;
    let mut time = 0;
    for subbuf in (from..to).step_by(size as usize) {
        if ring.field(subbuf, offset_of!(LttSubbuf, position)) != subbuf {
            assert!(
                to > subbuf + size,
                "the skipped sub-buffer is the newest one"
            );
            decoded.passed.push(subbuf);
            continue;
        }
        let end = to.min(subbuf + size);
        let base = ring.field(subbuf, offset_of!(LttSubbuf, base));
        let committed = ring.field(subbuf, offset_of!(LttSubbuf, committed));
        let contiguous = ring.field(subbuf, offset_of!(LttSubbuf, contiguous));
        assert_eq!(committed - base, end - subbuf, "uncommitted bytes");
        assert!(subbuf < contiguous && contiguous <= end);
        assert_eq!(
            ring.field(subbuf, offset_of!(LttSubbuf, cpu)),
            7 | u64::from(LTT_SUBBUF_MAGIC) << 32
        );
        let begun = ring.field(subbuf, offset_of!(LttSubbuf, time));
        assert!(time <= begun, "the time goes back");
        time = begun;
        decoded.begun.push(begun);
        let mut position = subbuf + HEADER;
        while position < end {
            let word = ring.peek(position);
            if word as u16 == LTT_ID_PAD {
                break;
            }
            let low = word >> 16;
            assert!(low >= time & (u64::MAX >> 16), "the time goes back");
            time = time & !(u64::MAX >> 16) | low;
            let second = ring.peek(position + 8);
            match word as u16 {
                LTT_ID_LONG => {
                    let len = second & LTT_LONG_LEN_MASK;
                    assert!(position + len <= end, "straddles");
                    assert_eq!(second & !(LTT_LONG_LEN_MASK | 0xffff << 32), LTT_LONG_DONE);
                    decoded.records.push(Record {
                        id: (second >> 32) as u16,
                        time,
                        payload: (RECORD_HEADER..len)
                            .step_by(8)
                            .map(|offset| ring.peek(position + offset))
                            .collect(),
                    });
                    position += len;
                }
                id => panic!("id {id:#x} at {position}"),
            }
        }
    }
    decoded
}

fn decode_all(ring: &'static Heap) -> Decoded {
    let head = ring.head_now();
    let from = (head - 1) / ring.subbuf_size * ring.subbuf_size + ring.subbuf_size;
    decode(ring, from.saturating_sub(ring.ring_size()), head)
}

/// Records of each length are written, up to the longest one that fits into a sub-buffer. A longer
/// one is lost.
///
/// Requirements: D2
#[test]
fn a_record_of_each_length() {
    let size = 1024;
    let longest = (size - HEADER - RECORD_HEADER) / 8;
    for words in 0..=longest {
        let ring = Heap::new(size, 4, false);
        for id in 1..=3 {
            let payload: Vec<_> = (0..words).map(|n| n << 16 | u64::from(id)).collect();
            ring.put(id, &payload).unwrap();
        }
        let decoded = decode_all(ring);
        assert_eq!(decoded.records.len(), 3);
        for (record, id) in decoded.records.iter().zip(1..) {
            assert_eq!(record.id, id);
            assert!(
                record
                    .payload
                    .iter()
                    .copied()
                    .eq((0..words).map(|n| n << 16 | u64::from(id)))
            );
        }
        assert_eq!(ring.lost_now(), 0);
    }
    let ring = Heap::new(size, 4, false);
    let longer = vec![0; longest as usize + 1];
    assert_eq!(ring.put(1, &longer), Err(LostError));
    assert_eq!((ring.lost_now(), ring.head_now()), (1, 0));
}

/// A record that does not fit into the rest of a sub-buffer begins the next one, whatever the rest
/// and the length are.
#[test]
fn a_record_at_each_distance_from_the_end() {
    let size = 512;
    for first in 0..=(size - HEADER - RECORD_HEADER) / 8 {
        for second in 0..6 {
            let ring = Heap::new(size, 2, false);
            ring.put(1, &vec![1; first as usize]).unwrap();
            let room = size - HEADER - RECORD_HEADER - 8 * first;
            let len = RECORD_HEADER + 8 * second;
            ring.put(2, &vec![2; second as usize]).unwrap();
            let fits = len <= room;
            let expected = if fits {
                size - room + len
            } else {
                size + HEADER + len
            };
            assert_eq!(ring.head_now(), expected);
            assert_eq!(decode_all(ring).records.len(), 2);
            let whole = !fits || len == room;
            assert_eq!(ring.filled.load(Ordering::SeqCst), u64::from(whole));
        }
    }
}

/// A full ring drops and counts the records that do not fit, until the reader consumes a
/// sub-buffer.
///
/// Requirements: D3, E7
#[test]
fn a_full_ring_drops_and_counts() {
    let ring = Heap::new(512, 4, false);
    // A record has 24 bytes, so a sub-buffer has 18 records and 16 free bytes.
    let accepted = (0..100).filter(|&n| ring.put(1, &[n]).is_ok()).count() as u64;
    assert_eq!(accepted, 4 * 18);
    assert_eq!(ring.lost_now(), 100 - accepted);
    assert_eq!(
        ring.filled.load(Ordering::SeqCst),
        3,
        "the last one is not padded yet"
    );
    assert!(decode_all(ring).numbers().into_iter().eq(0..accepted));
    // A shorter record still fits.
    ring.put(1, &[]).unwrap();
    assert_eq!(ring.filled.load(Ordering::SeqCst), 4);
    ring.consume(511);
    assert_eq!(ring.put(1, &[100]), Err(LostError));
    ring.consume(512);
    ring.put(1, &[101]).unwrap();
    let decoded = decode(ring, 2048, ring.head_now());
    assert_eq!(decoded.numbers(), [101]);
    assert_eq!(
        ring.field(2048, offset_of!(LttSubbuf, lost)),
        ring.lost_now()
    );
}

/// After any number of laps, the ring has the newest records. It overwrites, or its reader consumes
/// in time.
#[test]
fn newest_records_remain_after_each_lap() {
    for overwrites in [true, false] {
        let ring = Heap::new(256, 4, overwrites);
        for n in 0..1000 {
            let payload = vec![n; 1 + n as usize % 7];
            if !overwrites {
                let head = ring.head_now();
                ring.consume(head - head % 256);
            }
            ring.put(1, &payload).unwrap();
            let numbers = decode_all(ring).numbers();
            let oldest = numbers[0];
            assert!(numbers.iter().copied().eq(oldest..=n));
            assert!(oldest == 0 || n - oldest >= 8);
        }
        assert_eq!(ring.lost_now(), 0);
        assert!(ring.head_now() > 8 * 1024);
    }
}

/// Only headers have the upper 16 bits of the time, so a new sub-buffer begins when these change.
#[test]
fn change_of_the_upper_time_bits_begins_a_sub_buffer() {
    let ring = Heap::new(512, 4, false);
    let late = (3 << 48) - 2;
    ring.clock.store(late, Ordering::SeqCst);
    for n in 0..4 {
        ring.put(1, &[n]).unwrap();
    }
    let decoded = decode_all(ring);
    assert_eq!(decoded.numbers(), [0, 1, 2, 3]);
    // The third record reads the clock again when it begins a sub-buffer.
    assert_eq!(decoded.begun, [late, late + 3]);
    let times: Vec<_> = decoded.records.iter().map(|record| record.time).collect();
    assert_eq!(times, [late, late + 1, late + 3, late + 4]);
}

/// Writers that wait for room lose nothing. Each wait ends when the reader consumes a sub-buffer.
///
/// Requirements: D7
#[test]
fn waiting_writer_loses_nothing() {
    let ring = Heap::new(256, 2, false);
    ring.reader.store(true, Ordering::SeqCst);
    for n in 0..500 {
        ring.put(1, &[n]).unwrap();
    }
    assert_eq!(ring.lost_now(), 0);
    ring.reader.store(false, Ordering::SeqCst);
    let lost = (0..20).filter(|&n| ring.put(1, &[n]).is_err()).count() as u64;
    assert!(lost > 0);
    assert_eq!(ring.lost_now(), lost);
}

/// A ring stops overwriting while a writer is at any step of an event that would overwrite. The
/// ring is then full, and keeps the newest records. It accepts records again when the reader
/// consumes.
///
/// Requirements: E3
#[test]
fn ring_stops_overwriting_at_any_step() {
    // With `nested`, a short record follows the change of the mode.
    for (events, nested) in (30..50).flat_map(|events| [(events, false), (events, true)]) {
        for at in 0.. {
            let ring = Heap::new(256, 4, true);
            let accepted: &Mutex<Vec<u64>> = Box::leak(Box::default());
            let put = move |n: u64, words: usize| {
                let is_ok = ring.put(1, &vec![n; words]).is_ok();
                accepted.lock().unwrap().extend(is_ok.then_some(n));
                is_ok
            };
            assert!((0..events).all(|n| put(n, 1)));
            let stop = move || {
                ring.overwrites.store(false, Ordering::SeqCst);
                if nested {
                    put(events + 1, 1);
                }
            };
            let steps = interrupted(at, stop, || {
                put(events, 8);
            });
            if steps <= at {
                break;
            }
            let mut n = events + 2;
            while put(n, 1) {
                n += 1;
            }
            let mut accepted = accepted.lock().unwrap().clone();
            accepted.sort_unstable();
            let mut numbers = decode_all(ring).numbers();
            numbers.sort_unstable();
            assert!(numbers.len() >= 12 && accepted.ends_with(&numbers));
            let lost = accepted.len() as u64 + ring.lost_now();
            assert_eq!(lost, n + u64::from(nested));
            // All places are quiescent, so the reader can consume each of them.
            let lost = ring.lost_now();
            ring.reader.store(true, Ordering::SeqCst);
            (0..100).for_each(|n| ring.put(1, &[n]).unwrap());
            assert_eq!(ring.in_the_way.load(Ordering::SeqCst), 0, "{events} {at}");
            assert_eq!(ring.lost_now(), lost);
            assert_eq!(decode_all(ring).numbers().last(), Some(&99));
        }
    }
}

/// A writer sleeps in the middle of a record for several laps. Other writers skip its place, and
/// lose nothing. After the writer leaves, they use the place again.
#[test]
fn busy_place_is_skipped_until_its_writer_leaves() {
    for overwrites in [true, false] {
        let ring = Heap::new(256, 4, overwrites);
        let keep_up = || {
            if !overwrites {
                let head = ring.head_now();
                ring.consume(head - head % 256);
            }
        };
        let sleeper = reserve(ring, 9, 2).unwrap();
        sleeper.payload()[0].store(11, Ordering::Relaxed);
        for n in 0..100 {
            keep_up();
            ring.put(1, &[n]).unwrap();
            let head = ring.head_now();
            if head > 2048 {
                let decoded = decode(ring, (head - 1) / 256 * 256 - 512, head);
                assert!(decoded.records.iter().all(|record| record.id == 1));
                assert!(decoded.passed.iter().all(|position| position % 1024 == 0));
            }
        }
        assert_eq!(ring.lost_now(), 0);
        // Its sub-buffer is unchanged.
        assert_eq!(ring.peek(0), 0);
        sleeper.payload()[1].store(12, Ordering::Relaxed);
        sleeper.complete();
        assert_eq!(ring.peek(HEADER + RECORD_HEADER + 8), 12);
        for n in 100..200 {
            keep_up();
            ring.put(1, &[n]).unwrap();
        }
        let decoded = decode_all(ring);
        assert_eq!(decoded.passed, [0; 0]);
        assert_eq!(*decoded.numbers().last().unwrap(), 199);
        assert_eq!(ring.lost_now(), 0);
    }
}

/// While writers sleep in all places, new records are lost. As soon as one writer leaves, the ring
/// accepts records again.
#[test]
fn ring_of_sleeping_writers_recovers_when_one_leaves() {
    for overwrites in [true, false] {
        let ring = Heap::new(256, 4, overwrites);
        let mut sleepers: Vec<_> = (0..4).map(|_| reserve(ring, 9, 20).unwrap()).collect();
        ring.consume(1024);
        for n in 0..10 {
            assert_eq!(ring.put(1, &[n]), Err(LostError));
        }
        assert_eq!(ring.lost_now(), 10);
        sleepers.remove(2).complete();
        ring.put(1, &[1]).unwrap();
        assert_eq!(decode(ring, 1024, ring.head_now()).passed, [1024, 1280]);
        drop(sleepers);
        for n in 2..100 {
            ring.consume(ring.head_now() & !255);
            ring.put(1, &[n]).unwrap();
        }
        assert_eq!(ring.lost_now(), 10);
        assert_eq!(decode_all(ring).passed, [0; 0]);
    }
}

/// A signal handler writes a record at each step of an event, in each state of the ring. Both
/// records are complete.
///
/// Requirements: D2
#[test]
fn a_nested_record_at_each_step() {
    const WORDS: [usize; 4] = [0, 1, 3, 14];
    for overwrites in [true, false] {
        for before in 0..40u64 {
            // The default tries each pair of lengths at every third position.
            let lengths = WORDS.iter().flat_map(|&o| WORDS.map(|n| (o, n)));
            let thinned = counts(3, 1);
            let lengths = (before..).zip(lengths);
            let lengths = lengths.filter(|(n, _)| n.is_multiple_of(thinned));
            for (_, (outer, nested)) in lengths {
                let mut at = 0;
                loop {
                    let ring = Heap::new(256, 4, overwrites);
                    let keep_up = move || ring.consume(ring.head_now() & !255);
                    for n in 0..before {
                        keep_up();
                        ring.put(1, &[n]).unwrap();
                    }
                    keep_up();
                    let steps = interrupted(
                        at,
                        move || ring.put(3, &vec![1001; 1 + nested]).unwrap(),
                        || ring.put(2, &vec![1000; 1 + outer]).unwrap(),
                    );
                    let decoded = decode_all(ring);
                    assert_eq!(decoded.passed, [0; 0]);
                    let mut ids: Vec<_> = decoded.records.iter().map(|r| r.id).collect();
                    ids.retain(|&id| id != 1);
                    ids.sort_unstable();
                    assert_eq!(ids, if at < steps { &[2, 3][..] } else { &[2] });
                    assert_eq!(ring.lost_now(), 0);
                    // The ring still works afterwards.
                    for n in 0..40 {
                        keep_up();
                        ring.put(1, &[n]).unwrap();
                    }
                    assert_eq!(decode_all(ring).passed, [0; 0]);
                    if at >= steps {
                        break;
                    }
                    at += 1;
                }
            }
        }
    }
}

/// Other writers write several laps at each step of an event. The event overwrites none of their
/// records, and afterwards all places are in use again.
#[test]
fn laps_by_others_at_each_step() {
    for before in 0..24u64 {
        for words in [1, 14] {
            let mut at = 0;
            loop {
                let ring = Heap::new(256, 4, true);
                for n in 0..before {
                    ring.put(1, &[n]).unwrap();
                }
                let laps = move || {
                    for n in 0..60 {
                        ring.put(3, &[n, !n]).unwrap();
                    }
                    // The interrupted writer must not change these words.
                    let now = decode_newest(ring);
                    SEEN.set(now);
                };
                SEEN.set(Vec::new());
                let steps = interrupted(at, laps, || {
                    ring.put(2, &vec![1000; words]).unwrap();
                });
                for (position, word) in SEEN.take() {
                    assert_eq!(ring.peek(position), word, "overwritten at step {at}");
                }
                for n in 0..60 {
                    ring.put(1, &[n]).unwrap();
                }
                let decoded = decode_all(ring);
                assert_eq!(decoded.passed, [0; 0], "step {at}");
                assert_eq!(ring.lost_now(), 0);
                if at >= steps {
                    break;
                }
                at += 1;
            }
        }
    }
}

thread_local! {
    static SEEN: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

/// The words of the records in the two newest complete sub-buffers, with their positions.
fn decode_newest(ring: &'static Heap) -> Vec<(u64, u64)> {
    let newest = ring.head_now() / 256 * 256;
    (newest - 512..newest)
        .step_by(256)
        .filter(|&subbuf| ring.field(subbuf, offset_of!(LttSubbuf, position)) == subbuf)
        .flat_map(|subbuf| (subbuf + HEADER..subbuf + 256).step_by(8))
        .map(|position| (position, ring.peek(position)))
        .collect()
}

/// Four threads write at the same time. No record is missing, the records of each thread are in
/// order, and the time never goes back.
#[test]
fn four_threads_write_everything() {
    const THREADS: u64 = 4;
    let events = if cfg!(miri) { 50 } else { 20_000 };
    let ring = Heap::new(1 << 16, 1 << 6, false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for n in 0..events {
                    ring.put(1, &[n, thread, !n][..2 + n as usize % 2]).unwrap();
                }
            });
        }
    });
    let mut seen = BTreeMap::<_, Vec<_>>::new();
    for record in decode(ring, 0, ring.head_now()).records {
        let n = record.payload[0];
        assert_eq!(record.payload.len() as u64, 2 + n % 2);
        assert!(record.payload.get(2).is_none_or(|&check| check == !n));
        seen.entry(record.payload[1]).or_default().push(n);
    }
    assert_eq!(seen.len() as u64, THREADS);
    assert!(
        seen.into_values()
            .all(|numbers| numbers.into_iter().eq(0..events))
    );
    assert_eq!(ring.lost_now(), 0);
}

/// Four threads write at the same time into a small ring that overwrites. All remaining records are
/// complete.
#[test]
fn four_threads_overwrite() {
    const THREADS: u64 = 4;
    let events = if cfg!(miri) { 50 } else { 50_000 };
    let ring = Heap::new(256, 4, true);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for n in 0..events {
                    let _ = ring.put(1, &[n, thread, !n]);
                }
            });
        }
    });
    let decoded = decode_all(ring);
    for record in &decoded.records {
        assert_eq!(record.payload[2], !record.payload[0]);
    }
    // No writer is inside any more, so all places are used again.
    for n in 0..40 {
        ring.put(1, &[n, 9, !n]).unwrap();
    }
    let decoded = decode_all(ring);
    assert_eq!(decoded.passed, [0; 0]);
    assert!(decoded.records.iter().all(|record| record.payload[1] == 9));
}

#[cfg(feature = "fallback")]
mod killed {
    //! Tests of writers that are killed at each step (A10, D3).

    use std::convert::Infallible;
    use std::rc::Rc;

    use usertrace_ring::{
        Counts, Format, Frozen, Geometry, Item, PayloadLengths, Positions, RingReader, WaitPolicy,
    };
    use usertrace_sys::Protocol;

    use super::*;

    const SIZE: u64 = 4096;

    struct Any;

    impl PayloadLengths for Any {
        fn payload_len(&self, _id: u16, bytes: &[u8]) -> Option<usize> {
            Some(bytes.len())
        }
    }

    /// Returns a ring after some laps, and the start of its current sub-buffer, which has `room`
    /// free bytes.
    fn prepared_ring(room: u64, laps: u64) -> (&'static Heap, u64) {
        let ring = Heap::new(SIZE, 2, false);
        ring.clock.store(1000, Ordering::SeqCst);
        for n in 0..laps * 4 {
            ring.consume(ring.head_now() & !(SIZE - 1));
            ring.put(1, &vec![n; 400]).unwrap();
        }
        ring.consume(ring.head_now() & !(SIZE - 1));
        let start = ring.head_now() & !(SIZE - 1);
        let there = (ring.head_now() - start).max(HEADER) + RECORD_HEADER;
        if let Some(before) = (SIZE - there).checked_sub(room) {
            ring.put(2, &vec![7; before as usize / 8]).unwrap();
        }
        (ring, start)
    }

    /// Reads a copy of a ring. Returns the ids of its records, and the reader's counts.
    fn read(bytes: &[u8], head: u64, start: u64) -> (Vec<u16>, Counts) {
        let format = Format {
            geometry: Geometry::new(SIZE as u32, 2).unwrap(),
            protocol: Protocol::Shared,
        };
        let mut memory = Frozen::new(bytes, Positions { head, claimed: 0 });
        let mut reader = RingReader::live(format, start, u64::MAX);
        let mut ids = Vec::new();
        let Ok(()) = reader.read(
            &mut memory,
            head,
            WaitPolicy::Last,
            &Any,
            &mut |item: Item<'_>| {
                if let Item::Record { id, .. } = item {
                    ids.push(id);
                }
                Ok::<_, Infallible>(())
            },
        );
        (ids, reader.counts())
    }

    /// Writes a record. A signal handler writes another one before step `nested_at`, and both are
    /// killed before step `killed_at`. Checks what a reader finds then. Returns whether step
    /// `nested_at` exists, and whether step `killed_at` does.
    fn kill_once(room: u64, laps: u64, nested_at: u64, killed_at: u64) -> (bool, bool) {
        let (ring, start) = prepared_ring(room, laps);
        let before = ring.head_now();
        // A copy of the ring at that step, and which of the two records are committed in it.
        let committed = Rc::new(Cell::new((false, false)));
        let snapshot = Rc::new(RefCell::new(None));
        let (done, taken) = (committed.clone(), snapshot.clone());
        let take = move || {
            let bytes: Vec<u8> = ring
                .words
                .iter()
                .flat_map(|word| word.0.load(Ordering::Relaxed).to_ne_bytes())
                .collect();
            taken.replace(Some((bytes, ring.head_now(), done.get())));
        };
        KILL.set(Some(Interruption {
            at: killed_at,
            what: Box::new(take),
        }));
        let done = committed.clone();
        let steps = interrupted(
            nested_at,
            move || {
                ring.put(4, &[9, 9]).unwrap();
                done.set((done.get().0, true));
            },
            || {
                ring.put(3, &[8, 8]).unwrap();
                committed.set((true, committed.get().1));
            },
        );
        KILL.set(None);
        let nested_ran = nested_at < steps;
        let Some((bytes, head, (outer, nested))) = snapshot.take() else {
            return (nested_ran, false);
        };
        let (mut ids, counts) = read(&bytes, head, start);
        ids.retain(|&id| id != 1);
        let what = format!(
            "room {room}, lap {laps}, nested {nested_at}, killed {killed_at}: {ids:?} {counts:?}"
        );
        assert!(room == SIZE || ids.contains(&2), "{what}");
        assert!(!outer || ids.contains(&3), "{what}");
        // Without the first header of the ring, the reader has no full time to start from.
        let headless = before == 0 && !outer && counts.corrupted == 1;
        assert!(!nested || headless || ids.contains(&4), "{what}");
        assert!(counts.corrupted == 0 || headless, "{what}");
        assert_eq!(counts.damaged, 0, "{what}");
        assert!(counts.unfinished <= 2 && ids.len() <= 3, "{what}");
        // SAFETY: `Heap::new` leaked this box. The interruptions that referred to it have run or
        // been dropped.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(ring).cast_mut()) });
        (nested_ran, true)
    }

    /// A thread and a signal handler that interrupts its event are killed at any step. The reader
    /// finds all committed records, and counts the others.
    ///
    /// Requirements: A10, D3
    #[test]
    fn killed_at_each_step() {
        // The room decides which of the two records begins a sub-buffer.
        for room in [0, 24, 32, 40, 56, 64, SIZE] {
            for laps in [0, 1] {
                for nested_at in 0.. {
                    let mut nested_ran = false;
                    for killed_at in 0.. {
                        let killed;
                        (nested_ran, killed) = kill_once(room, laps, nested_at, killed_at);
                        if !killed {
                            break;
                        }
                    }
                    if !nested_ran {
                        break;
                    }
                }
            }
        }
    }
}
