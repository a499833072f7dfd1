//! Models of the protocol of restartable sequences, in steps of one instruction, with the real
//! reader.
//!
//! Loom does not know CPUs: the threads of a CPU take turns, see all of each other's stores, and
//! the kernel restarts a sequence if another thread ran in between. So one loom thread executes the
//! steps of all threads of a CPU by a [`Schedule`]; the tests try all schedules. The reader on
//! another CPU is a second loom thread, which sees stores in every order that weak memory permits.
//!
//! The steps are those of `usertrace/src/writer/{percpu.rs,rseq/}`. For each [`Fault`] of a writer,
//! a model shows that it is detected.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use usertrace_ring::{
    Counts, Format, Geometry, Item, PayloadLengths, Positions, RingMemory, RingReader, WaitPolicy,
};
use usertrace_sys::Protocol;

const SUBBUF: u64 = 4096;
const HEADER: u64 = 64;
const MAGIC: u64 = 0x4c54_5453 << 32;
const PAD: u64 = 0xffff;
const LONG: u64 = 0xfffd;
const BUSY: u64 = 1 << 63;
const DONE: u64 = 1 << 62;
/// Length of the records here: a header, and one word of payload.
const LEN: u64 = 16;

/// An error in a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The head is stored before the payload.
    HeadFirst,
    /// The head is stored without release semantics.
    HeadRelaxed,
    /// The claim comes after the first store into the claimed sub-buffer.
    ClaimLate,
    /// No fence keeps stores into the claimed sub-buffer behind the claim.
    ClaimWithoutFence,
    /// The writer overwrites without a claim, as the mode changed in between.
    NotClaimed,
    /// A long record is marked as done before its payload is stored.
    DoneFirst,
    /// A sequence is not restarted after another thread ran.
    NotRestarted,
}

/// A ring. Only words that change during the model are atomics of loom.
struct Ring {
    head: AtomicU64,
    /// The head as the writers' CPU sees it. It is no atomic of loom: loom does not try all orders
    /// of a store and another thread's load if the storing thread has loaded the value before.
    own_head: std::sync::atomic::AtomicU64,
    claimed: AtomicU64,
    consumed: AtomicU64,
    words: BTreeMap<u64, AtomicU64>,
    rest: Vec<u64>,
    size: u64,
    fault: Fault,
}

impl Ring {
    /// A ring that contains `words` at first. Words at the positions in `changing` may change.
    fn new(subbufs: u64, words: &[(u64, u64)], changing: &[u64], head: u64, fault: Fault) -> Self {
        let size = subbufs * SUBBUF;
        let mut rest = vec![0; size as usize / 8];
        for (position, word) in words {
            rest[(position % size) as usize / 8] = *word;
        }
        let live = changing.iter().map(|position| {
            let offset = position % size;
            (offset, AtomicU64::new(rest[offset as usize / 8]))
        });
        Self {
            head: AtomicU64::new(head),
            own_head: head.into(),
            claimed: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            words: live.collect(),
            rest,
            size,
            fault,
        }
    }

    fn store(&self, position: u64, word: u64) {
        self.words[&(position % self.size)].store(word, Ordering::Relaxed);
    }
}

/// One operation of a thread.
enum Op {
    /// A sequence: stores words behind the head, and moves it. `at`: the only head with which it
    /// does anything, if there is one.
    Sequence {
        at: Option<u64>,
        words: fn(u64) -> Vec<(u64, u64)>,
        len: u64,
    },
    /// A step outside of sequences. Its second argument is the head from which the last sequence
    /// started. False: the thread ends.
    Step(fn(&Ring, u64) -> bool),
    /// A signal handler that interrupts the thread here.
    Handler(Vec<Op>),
}

/// A thread on the CPU.
struct Thread {
    ops: VecDeque<Op>,
    /// Number of steps of the sequence that were executed.
    step: usize,
    head: u64,
    at: u64,
}

impl Thread {
    fn new(ops: impl Into<VecDeque<Op>>) -> Self {
        Self {
            ops: ops.into(),
            step: 0,
            head: 0,
            at: 0,
        }
    }

    /// Executes the next step. False: there is none.
    fn step(&mut self, ring: &Ring) -> bool {
        let Some(op) = self.ops.front_mut() else {
            return false;
        };
        match op {
            Op::Sequence { at, words, len } => {
                let step = self.step;
                self.step += 1;
                if step == 0 {
                    self.head = ring.own_head.load(Ordering::Relaxed);
                    if at.is_none_or(|at| at == self.head) {
                        return true;
                    }
                } else {
                    let words = words(self.head);
                    let order = match ring.fault {
                        Fault::HeadRelaxed => Ordering::Relaxed,
                        _ => Ordering::Release,
                    };
                    let commit = || {
                        ring.own_head.store(self.head + *len, Ordering::Relaxed);
                        ring.head.store(self.head + *len, order);
                    };
                    match ring.fault {
                        Fault::HeadFirst if step == 1 => commit(),
                        Fault::HeadFirst => ring.store(words[step - 2].0, words[step - 2].1),
                        _ if step <= words.len() => {
                            ring.store(words[step - 1].0, words[step - 1].1);
                        }
                        _ => commit(),
                    }
                    if step <= words.len() {
                        return true;
                    }
                    self.at = self.head;
                }
                self.step = 0;
                self.ops.pop_front();
            }
            Op::Step(body) => {
                if body(ring, self.at) {
                    self.ops.pop_front();
                } else {
                    self.ops.clear();
                }
            }
            Op::Handler(ops) => {
                let mut handler = Thread::new(std::mem::take(ops));
                while handler.step(ring) {}
                self.ops.pop_front();
            }
        }
        true
    }

    /// Another thread, or a signal handler, runs next.
    fn preempt(&mut self, ring: &Ring) {
        if ring.fault != Fault::NotRestarted {
            self.step = 0;
        }
    }
}

/// Numbers of steps that the two threads execute in turns, the first thread first. Then each thread
/// runs to its end.
type Schedule = [usize; 3];

/// Schedules of two threads, the first of which has `steps` steps.
fn schedules(steps: usize, others: &[usize]) -> impl Iterator<Item = Schedule> {
    (0..=steps).flat_map(move |a| others.iter().map(move |&b| [a, b, b % 3]))
}

/// Runs threads on one CPU.
fn run(ring: &Ring, mut threads: Vec<Thread>, schedule: Schedule) {
    for (turn, steps) in schedule.into_iter().enumerate() {
        let who = turn % threads.len();
        for _ in 0..steps {
            threads[who].step(ring);
        }
        threads[who].preempt(ring);
    }
    for mut thread in threads {
        while thread.step(ring) {}
    }
}

/// A record.
fn event() -> Op {
    Op::Sequence {
        at: None,
        words: |head| vec![(head, header(1)), (head + 8, payload(1))],
        len: LEN,
    }
}

/// A long record, with a handler in the middle that traces.
fn long(fault: Fault) -> Vec<Op> {
    const SECOND: u64 = (LEN + 8) | 1 << 32;
    let done = Op::Step(|ring, at| {
        let second = &ring.words[&((at + 8) % ring.size)];
        second.store(SECOND | DONE, Ordering::Release);
        true
    });
    let payload = Op::Step(|ring, at| {
        ring.store(at + LEN, payload(1));
        true
    });
    let reserve = Op::Sequence {
        at: None,
        words: |head| vec![(head, LONG | 1 << 16), (head + 8, SECOND | BUSY)],
        len: LEN + 8,
    };
    let handler = Op::Handler(vec![event()]);
    match fault {
        Fault::DoneFirst => vec![reserve, handler, done, payload],
        _ => vec![reserve, handler, payload, done],
    }
}

/// Position of the next sub-buffer in a ring of two full ones.
const NEXT: u64 = 2 * SUBBUF;

/// A record that needs a new sub-buffer, in a ring that overwrites.
fn overwrite(fault: Fault) -> Vec<Op> {
    let claim = Op::Step(|ring, _| {
        // A sequence with one store.
        if ring.own_head.load(Ordering::Relaxed) == NEXT {
            ring.claimed.store(SUBBUF, Ordering::Relaxed);
        }
        true
    });
    let release = Op::Step(|_, _| {
        fence(Ordering::Release);
        true
    });
    let ops = match fault {
        Fault::ClaimLate => vec![begin(), claim],
        Fault::ClaimWithoutFence => vec![claim, begin()],
        Fault::NotClaimed => vec![begin()],
        _ => vec![claim, release, begin()],
    };
    ops.into_iter().chain([numbered_3()]).collect()
}

/// A record that needs a new sub-buffer, in a ring that discards.
fn discard() -> Vec<Op> {
    let room = Op::Step(|ring, _| ring.consumed.load(Ordering::Acquire) >= SUBBUF);
    vec![room, begin(), numbered_3()]
}

fn begin() -> Op {
    Op::Sequence {
        at: Some(NEXT),
        words: |_| vec![(NEXT + 8, 3), (NEXT, NEXT), (NEXT + 24, MAGIC)],
        len: HEADER,
    }
}

fn numbered_3() -> Op {
    Op::Sequence {
        at: None,
        words: |head| vec![(head, header(3)), (head + 8, payload(3))],
        len: LEN,
    }
}

/// The ring as the reader on another CPU sees it.
impl RingMemory for &Ring {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        let plain = &self.rest[offset as usize / 8..end as usize / 8];
        for (to, word) in buffer.chunks_exact_mut(8).zip(plain) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        for (at, word) in self.words.range(offset..end) {
            let to = (at - offset) as usize;
            let word = word.load(Ordering::Acquire);
            buffer[to..to + 8].copy_from_slice(&word.to_ne_bytes());
        }
    }

    fn load(&mut self, offset: u64) -> u64 {
        match self.words.get(&offset) {
            Some(word) => word.load(Ordering::Acquire),
            None => self.rest[offset as usize / 8],
        }
    }

    fn positions(&mut self) -> Positions {
        fence(Ordering::Acquire);
        Positions {
            head: self.head.load(Ordering::Acquire),
            claimed: self.claimed.load(Ordering::Acquire),
        }
    }
}

/// Header word of a short record with number `n`, which is also its time.
fn header(n: u64) -> u64 {
    1 | n << 16
}

fn payload(n: u64) -> u64 {
    0xfeed_0000 | n
}

/// Payload lengths: one word, for all ids.
struct Word;

impl PayloadLengths for Word {
    fn payload_len(&self, _: u16, bytes: &[u8]) -> Option<usize> {
        (bytes.len() >= 8).then_some(8)
    }
}

fn reader(subbufs: u64, from: u64) -> RingReader {
    let format = Format {
        geometry: Geometry::new(SUBBUF as u32, subbufs as u32).unwrap(),
        protocol: Protocol::Rseq,
    };
    RingReader::live(format, from, 1 << 40)
}

/// Reads all that is committed now. Checks that all records are complete, and returns their
/// numbers.
fn read(reader: &mut RingReader, mut ring: &Ring, policy: WaitPolicy) -> Vec<u64> {
    let head = ring.positions().head;
    let mut numbers = Vec::new();
    let Ok(()) = reader.read(&mut ring, head, policy, &Word, &mut |item: Item<'_>| {
        if let Item::Record {
            time,
            payload: bytes,
            ..
        } = item
        {
            assert_eq!(bytes, payload(time).to_ne_bytes(), "torn");
            numbers.push(time);
        }
        Ok::<_, Infallible>(())
    });
    numbers
}

/// Checks that the reader skipped nothing but overwritten records.
fn check(counts: Counts) {
    let events = counts.events;
    let (overwritten, overwritten_bytes) = (counts.overwritten, counts.overwritten_bytes);
    let whole = Counts {
        events,
        overwritten,
        overwritten_bytes,
        ..Counts::default()
    };
    assert_eq!(counts, whole);
}

/// The header words of a new sub-buffer.
fn begun(position: u64, time: u64) -> Vec<(u64, u64)> {
    vec![
        (position, position),
        (position + 8, time),
        (position + 24, MAGIC),
    ]
}

/// The words of a sub-buffer with one record with number `n`, and padding.
fn filled(position: u64, n: u64) -> Vec<(u64, u64)> {
    let mut words = begun(position, n);
    let at = position + HEADER;
    words.extend([
        (at, header(n)),
        (at + 8, payload(n)),
        (at + LEN, PAD | n << 16),
    ]);
    words
}

/// Runs threads on a CPU and a reader at the same time, in a ring that `ring` makes. `check` gets
/// the numbers of all records that were read, and the reader's counts.
fn model(
    ring: impl Fn() -> Ring + Send + Sync + 'static,
    threads: impl Fn() -> Vec<Vec<Op>> + Send + Sync + 'static,
    (schedule, preemptions): (Schedule, usize),
    reader: impl Fn() -> RingReader + Send + Sync + 'static,
    check: impl Fn(Vec<u64>, Counts) + Send + Sync + 'static,
) {
    let threads = std::sync::Arc::new(threads);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        let ring = Arc::new(ring());
        let cpu = thread::spawn({
            let (ring, threads) = (ring.clone(), threads.clone());
            move || {
                let threads = threads().into_iter().map(Thread::new).collect();
                run(&ring, threads, schedule);
            }
        });
        let mut reader = reader();
        let mut numbers = read(&mut reader, &ring, WaitPolicy::Wait);
        // Pairs with the load of a writer that needs room.
        let position = reader.position();
        ring.consumed.store(position, Ordering::Release);
        cpu.join().unwrap();
        numbers.extend(read(&mut reader, &ring, WaitPolicy::Last));
        check(numbers, reader.counts());
    });
}

/// A ring whose first sub-buffer was begun, without records.
fn fresh(fault: Fault) -> Ring {
    let changing: Vec<_> = (0..9).map(|n| HEADER + 8 * n).collect();
    Ring::new(2, &begun(0, 0), &changing, HEADER, fault)
}

/// A full ring of two sub-buffers, with one record in each.
fn full(fault: Fault) -> Ring {
    let words = [filled(0, 1), filled(SUBBUF, 2)].concat();
    let behind = (0..4).map(|n| HEADER + 8 * n);
    let changing: Vec<_> = [0, 8, 24].into_iter().chain(behind).collect();
    Ring::new(2, &words, &changing, NEXT, fault)
}

fn short_records(fault: Fault) {
    for schedule in schedules(4, &[0, 1, 2, 3, 4]) {
        model(
            move || fresh(fault),
            || vec![vec![event()], vec![event()]],
            (schedule, 4),
            || reader(2, 0),
            |numbers, counts| {
                assert_eq!(numbers, [1, 1]);
                check(counts);
            },
        );
    }
}

/// A thread is preempted by another one, or interrupted by a handler that traces, between any two
/// steps.
#[test]
fn short_records_are_whole() {
    short_records(Fault::None);
}

#[test]
#[should_panic]
fn short_records_are_not_if_the_head_is_stored_first() {
    short_records(Fault::HeadFirst);
}

#[test]
#[should_panic]
fn short_records_are_not_if_the_head_is_not_released() {
    short_records(Fault::HeadRelaxed);
}

#[test]
#[should_panic]
fn short_records_are_not_if_sequences_are_not_restarted() {
    short_records(Fault::NotRestarted);
}

fn long_record(fault: Fault) {
    for schedule in schedules(7, &[0, 2, 4]) {
        model(
            move || fresh(fault),
            move || vec![long(fault), vec![event()]],
            (schedule, 3),
            || reader(2, 0),
            |numbers, counts| {
                assert_eq!(numbers, [1, 1, 1]);
                check(counts);
            },
        );
    }
}

/// A reader waits for a long record, in which a handler writes another one, while another thread
/// writes, too.
#[test]
fn a_long_record_is_waited_for() {
    long_record(Fault::None);
}

#[test]
#[should_panic]
fn a_long_record_is_torn_if_it_is_done_before_its_payload() {
    long_record(Fault::DoneFirst);
}

fn overwriting(fault: Fault, threads: usize, schedule: Schedule, preemptions: usize) {
    model(
        move || full(fault),
        move || (0..threads).map(|_| overwrite(fault)).collect(),
        (schedule, preemptions),
        || reader(2, 0),
        move |numbers, counts| {
            // The newest record is never lost, and lost ones are counted.
            let lost = counts.overwritten as usize;
            assert!(lost <= 1);
            assert_eq!(numbers, [1, 2, 3, 3][lost..2 + threads]);
            check(counts);
        },
    );
}

/// A thread overwrites the oldest sub-buffer while a reader reads it.
#[test]
fn overwritten_records_are_counted_and_not_read() {
    overwriting(Fault::None, 1, [0; 3], 2);
}

/// Two threads overwrite the oldest sub-buffer while a reader reads it.
#[test]
#[ignore = "full tier: long"]
fn two_writers_overwrite_at_the_same_time() {
    for schedule in [[1, 2, 1], [3, 6, 0], [4, 3, 2], [5, 4, 1]] {
        overwriting(Fault::None, 2, schedule, 1);
    }
}

#[test]
#[should_panic]
fn overwritten_records_are_read_if_the_claim_is_late() {
    overwriting(Fault::ClaimLate, 1, [0; 3], 2);
}

#[test]
#[should_panic]
fn overwritten_records_are_read_if_the_claim_has_no_fence() {
    overwriting(Fault::ClaimWithoutFence, 1, [0; 3], 2);
}

#[test]
#[should_panic]
fn overwritten_records_are_read_without_a_claim() {
    overwriting(Fault::NotClaimed, 1, [0; 3], 2);
}

/// The mode changes between two writers: one overwrites, the other one discards.
///
/// Requirements: E3
#[test]
#[ignore = "full tier: long"]
fn mode_changes_between_two_writers() {
    for turned in [false, true] {
        for schedule in schedules(5, &[0, 1, 2, 3, 4, 5]) {
            model(
                || full(Fault::None),
                move || {
                    let mut threads = vec![overwrite(Fault::None), discard()];
                    if turned {
                        threads.reverse();
                    }
                    threads
                },
                (schedule, 1),
                || reader(2, 0),
                |numbers, counts| {
                    let lost = counts.overwritten as usize;
                    assert!(lost <= 1);
                    let kept = &[1, 2, 3, 3][lost..];
                    assert!(kept.starts_with(&numbers) && numbers.len() + lost >= 3);
                    check(counts);
                },
            );
        }
    }
}

/// The reader makes room in a full ring: records that it has read are not overwritten before.
#[test]
fn a_reader_makes_room() {
    for schedule in schedules(9, &[0, 2, 5]) {
        model(
            || full(Fault::None),
            || vec![discard(), discard()],
            (schedule, 3),
            || reader(2, 0),
            |numbers, counts| {
                assert!([1, 2, 3, 3].starts_with(&numbers) && numbers.len() >= 2);
                check(counts);
            },
        );
    }
}
