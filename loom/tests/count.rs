//! Models of an update of a counter, in steps of one instruction, with the real reader.
//!
//! As in `rseq.rs`, one loom thread executes the steps of all threads of a CPU, in turns that a
//! [`Schedule`] gives, and the reader on another CPU is a second loom thread. The steps are those
//! of `usertrace/src/writer/{count.rs,rseq/}`, of the fast path and of the slow one: these differ
//! in what they load, and in the order of stores that no reader can tell apart. For each [`Fault`]
//! of a writer, a model shows that it is detected.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use usertrace_ring::{CountCell, CountKey, CountTable, Geometry, Positions, RingMemory};
use usertrace_sys::count::bucket_of;
use usertrace_sys::uapi::{LTT_COUNT_BUCKET_SHIFT, LTT_COUNT_CELL_VALUE};

/// Where the cell is in the table: behind the overflow cell.
const CELL: u64 = LTT_COUNT_CELL_VALUE as u64;
/// Offsets in a cell.
const COUNT: u64 = 0;
const NAME: u64 = 8;
const STATES: u64 = 48;
const STATE_SIZE: u64 = 40;
const HISTOGRAM: u64 = STATES + 2 * STATE_SIZE;
/// Offsets in a state.
const SUM: u64 = 0;
const MIN: u64 = 16;
const MAX: u64 = 24;
const BUCKET: u64 = 32;

/// The id of the event.
const ID: u64 = 1;

/// An error in a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The count is stored before the state.
    CommitFirst,
    /// The count is stored without release semantics.
    CommitRelaxed,
    /// Nothing keeps the stores of an update behind the count of the one before.
    NoFence,
    /// The last update's bucket is stored after the count.
    BucketLate,
    /// The event of a new cell is stored after its count.
    NameLate,
    /// A sequence is not restarted after another thread ran.
    NotRestarted,
}

/// A table with one cell in use, or soon to be. Only words that change during the model are atomics
/// of loom.
struct Table {
    words: BTreeMap<u64, AtomicU64>,
    /// The same as the writers' CPU sees it.
    own: BTreeMap<u64, std::sync::atomic::AtomicU64>,
    rest: BTreeMap<u64, u64>,
    fault: Fault,
}

impl Table {
    /// A table whose cell contains `words` at first. Those at the offsets in `changing` may change.
    fn new(words: &[(u64, u64)], changing: &[u64], fault: Fault) -> Self {
        let rest: BTreeMap<u64, u64> = words.iter().copied().collect();
        let first = |offset: &u64| rest.get(offset).copied().unwrap_or(0);
        let of = |offset: &u64| (*offset, AtomicU64::new(first(offset)));
        let own = |offset: &u64| (*offset, first(offset).into());
        Self {
            words: changing.iter().map(of).collect(),
            own: changing.iter().map(own).collect(),
            rest,
            fault,
        }
    }

    /// A word as the writers' CPU sees it.
    fn own(&self, offset: u64) -> u64 {
        match self.own.get(&offset) {
            Some(word) => word.load(Ordering::Relaxed),
            None => self.rest.get(&offset).copied().unwrap_or(0),
        }
    }

    fn store(&self, offset: u64, word: u64, order: Ordering) {
        match self.words.get(&offset) {
            Some(live) => {
                self.own[&offset].store(word, Ordering::Relaxed);
                live.store(word, order);
            }
            None => assert_eq!(self.own(offset), word, "offset {offset} does not change"),
        }
    }

    /// The stores of an update, but for the count: those of a new cell, of the last update's
    /// bucket, and of the state.
    fn update(&self, value: u64) -> Vec<(u64, u64)> {
        let count = self.own(COUNT);
        let state = |count: u64| STATES + STATE_SIZE * (count % 2);
        let (now, next) = (state(count), state(count + 1));
        let last = self.own(now + BUCKET);
        let last_bucket = last >> LTT_COUNT_BUCKET_SHIFT;
        let in_last = last & ((1 << LTT_COUNT_BUCKET_SHIFT) - 1);
        let bucket = bucket_of(value, false) as u64;
        let before = match bucket == last_bucket {
            true => in_last,
            false => self.own(HISTOGRAM + 8 * bucket),
        };
        let (min, max) = match count {
            0 => (value, value),
            _ => (
                value.min(self.own(now + MIN)),
                value.max(self.own(now + MAX)),
            ),
        };
        let mut stores = Vec::new();
        if count == 0 {
            stores.push((NAME, ID));
        } else {
            stores.push((HISTOGRAM + 8 * last_bucket, in_last));
        }
        stores.extend([
            (next + SUM, self.own(now + SUM) + value),
            (next + MIN, min),
            (next + MAX, max),
            (
                next + BUCKET,
                bucket << LTT_COUNT_BUCKET_SHIFT | (before + 1),
            ),
        ]);
        stores.retain(|(offset, _)| self.words.contains_key(offset));
        stores
    }
}

/// A thread that counts one event.
struct Thread {
    value: u64,
    step: usize,
    count: u64,
    stores: Vec<(u64, u64)>,
    is_done: bool,
}

impl Thread {
    fn new(value: u64) -> Self {
        Self {
            value,
            step: 0,
            count: 0,
            stores: Vec::new(),
            is_done: false,
        }
    }

    /// Executes the next step. False: there is none.
    fn step(&mut self, table: &Table) -> bool {
        if self.is_done {
            return false;
        }
        let step = self.step;
        self.step += 1;
        if step == 0 {
            self.count = table.own(COUNT);
            self.stores = table.update(self.value);
            if table.fault != Fault::NoFence {
                fence(Ordering::Release);
            }
            return true;
        }
        let order = match table.fault {
            Fault::CommitRelaxed => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        let commit_at = match table.fault {
            Fault::CommitFirst => 0,
            // Behind it is only the first store.
            Fault::BucketLate | Fault::NameLate => self.stores.len() - 1,
            _ => self.stores.len(),
        };
        if matches!(table.fault, Fault::BucketLate | Fault::NameLate) && step == 1 {
            self.stores.rotate_left(1);
        }
        if step - 1 == commit_at {
            table.store(COUNT, self.count + 1, order);
        } else {
            let at = step - 1 - usize::from(step - 1 > commit_at);
            let (offset, word) = self.stores[at];
            table.store(offset, word, Ordering::Relaxed);
        }
        self.is_done = step > self.stores.len();
        true
    }

    /// Another thread runs next.
    fn preempt(&mut self, table: &Table) {
        if table.fault != Fault::NotRestarted {
            self.step = 0;
        }
    }
}

/// Numbers of steps that two threads execute in turns. Then each thread runs to its end.
type Schedule = [usize; 2];

/// Runs threads that count these values on one CPU.
fn run(table: &Table, values: &[u64], schedule: Schedule) {
    let mut threads: Vec<_> = values.iter().map(|value| Thread::new(*value)).collect();
    for (thread, steps) in threads.iter_mut().zip(schedule) {
        for _ in 0..steps {
            thread.step(table);
        }
        thread.preempt(table);
    }
    for thread in &mut threads {
        while thread.step(table) {}
    }
}

/// The table as the reader on another CPU sees it.
impl RingMemory for &Table {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        for (at, to) in (offset..).step_by(8).zip(buffer.chunks_exact_mut(8)) {
            to.copy_from_slice(&self.load(at).to_ne_bytes());
        }
    }

    fn load(&mut self, offset: u64) -> u64 {
        let Some(at) = offset.checked_sub(CELL) else {
            return 0;
        };
        match self.words.get(&at) {
            Some(word) => word.load(Ordering::Acquire),
            None => self.rest.get(&at).copied().unwrap_or(0),
        }
    }

    fn positions(&mut self) -> Positions {
        unreachable!("a table has none")
    }
}

/// Reads the cell, if it is in use. Checks that it is whole: that it has only values of `values`,
/// and that all of its parts are of the same update.
fn read(mut table: &Table, values: &[u64]) -> Option<CountCell> {
    let geometry = Geometry::new(4096, 2).unwrap();
    let layout = CountTable::new(geometry, LTT_COUNT_CELL_VALUE).unwrap();
    let seen = Cell::new(None);
    let Ok(gaps) = layout.read(&mut table, |cell| {
        seen.set(Some(cell));
        Ok::<_, Infallible>(())
    });
    assert_eq!(gaps.cells(), 0, "torn");
    let cell = seen.into_inner()?;
    let of = cell.values.as_ref().unwrap();
    let is_seen = |value: &&u64| of.histogram[bucket_of(**value, false)] > 0;
    let number = |value: u64| i128::from(of.histogram[bucket_of(value, false)]);
    let sum: i128 = values.iter().map(|v| i128::from(*v) * number(*v)).sum();
    assert_eq!((cell.id, &cell.key), (Some(ID as u16), &CountKey::None));
    assert_eq!((of.number(), of.sum), (cell.count, sum), "torn");
    assert_eq!(Some(&of.min), values.iter().filter(is_seen).min(), "torn");
    assert_eq!(Some(&of.max), values.iter().filter(is_seen).max(), "torn");
    Some(cell)
}

/// Runs threads on a CPU and a reader at the same time.
fn model(
    table: impl Fn() -> Table + Send + Sync + 'static,
    values: &'static [u64],
    schedule: Schedule,
    preemptions: usize,
) {
    /// Values that a cell may have: those of the threads, and the one that it has at first.
    const VALUES: [u64; 2] = [1, 4];
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        let table = Arc::new(table());
        let before = table.own(COUNT);
        let cpu = thread::spawn({
            let table = table.clone();
            move || run(&table, values, schedule)
        });
        let first = read(&table, &VALUES).map_or(0, |cell| cell.count);
        cpu.join().unwrap();
        let last = read(&table, &VALUES).expect("it is in use");
        assert_eq!(last.count, before + values.len() as u64);
        assert!((before..=last.count).contains(&first));
    });
}

/// A cell that has counted the value 1.
fn used(fault: Fault) -> Table {
    let [even, odd] = [0, 1].map(|n| STATES + STATE_SIZE * n);
    let words = [
        (COUNT, 1),
        (NAME, ID),
        (even + MIN, 1),
        (odd + SUM, 1),
        (odd + MIN, 1),
        (odd + MAX, 1),
        (odd + BUCKET, 1 << LTT_COUNT_BUCKET_SHIFT | 1),
    ];
    let of_states = [even, odd].into_iter();
    let of_states = of_states.flat_map(|state| [SUM, MAX, BUCKET].map(|word| state + word));
    let histogram = [1, 4].map(|value| HISTOGRAM + 8 * bucket_of(value, false) as u64);
    let changing: Vec<u64> = of_states.chain(histogram).chain([COUNT]).collect();
    Table::new(&words, &changing, fault)
}

/// A cell that is free.
fn free(fault: Fault) -> Table {
    let state = STATES + STATE_SIZE;
    let changing = [
        COUNT,
        NAME,
        state + SUM,
        state + MIN,
        state + MAX,
        state + BUCKET,
    ];
    Table::new(&[], &changing, fault)
}

/// Two threads count in the same cell, one of which is preempted anywhere.
fn two_updates(fault: Fault, steps: impl IntoIterator<Item = usize>) {
    for steps in steps {
        model(move || used(fault), &[4, 1], [steps, 0], 2);
    }
}

#[test]
fn cells_are_whole() {
    two_updates(Fault::None, [4]);
}

/// Likewise, wherever the thread is preempted.
#[test]
#[ignore = "full tier: long"]
fn cells_are_whole_wherever_a_thread_is_preempted() {
    two_updates(Fault::None, 0..6);
}

#[test]
#[should_panic]
fn cells_are_torn_if_the_count_is_stored_first() {
    two_updates(Fault::CommitFirst, [4]);
}

#[test]
#[should_panic]
fn cells_are_torn_if_the_count_is_not_released() {
    two_updates(Fault::CommitRelaxed, [4]);
}

#[test]
#[should_panic]
fn cells_are_torn_without_a_fence() {
    two_updates(Fault::NoFence, [4]);
}

#[test]
#[should_panic]
fn cells_are_torn_if_the_last_bucket_is_late() {
    two_updates(Fault::BucketLate, [4]);
}

/// Both threads run a part of their sequences, and then the rest.
#[test]
#[should_panic]
fn counts_are_lost_if_sequences_are_not_restarted() {
    model(|| used(Fault::NotRestarted), &[4, 1], [3, 3], 2);
}

#[test]
fn counts_are_exact_if_sequences_are_restarted() {
    for schedule in [[3, 3], [6, 2], [5, 6]] {
        model(|| used(Fault::None), &[4, 1], schedule, 1);
    }
}

#[test]
fn new_cells_are_whole() {
    model(|| free(Fault::None), &[4], [0, 0], 3);
}

#[test]
#[should_panic]
fn new_cells_are_torn_if_their_event_is_late() {
    model(|| free(Fault::NameLate), &[4], [0, 0], 3);
}

#[test]
#[should_panic]
fn new_cells_are_torn_if_the_count_is_not_released() {
    model(|| free(Fault::CommitRelaxed), &[4], [0, 0], 3);
}
