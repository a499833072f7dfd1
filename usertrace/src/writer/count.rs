//! Counts events in the tables of a channel that counts (`struct ltt_count_cell` in `linux/ltt.h`).
//!
//! There is a table for each CPU. A writer finds the cell of its event and key, computes the cell's
//! next state, and stores that in one restartable sequence. The sequence compares the count that
//! the computation began with, and commits by the store of the next one. So a cell is whole at each
//! instruction: a process that is killed, or a kernel that panics, leaves an update as done or as
//! not begun.
//!
//! The fast path does all of that in the sequence, for a cell that the event already has
//! ([`count_directly`]).
//!
//! Tables lie in memory that the process, and so its bugs, can write to. All numbers from a cell
//! are bounded before they become an offset.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use usertrace_sys::count::bucket_of;
use usertrace_sys::uapi::{
    LTT_COUNT_BUCKET_SHIFT, LTT_COUNT_BUCKETS, LTT_COUNT_CELL_PLAIN, LTT_COUNT_KEY_MAX,
    LTT_COUNT_KEY_NUMBER, LTT_COUNT_PROBES,
};

use super::cell::{BUCKET, Cell, CellValues, MAX, MIN, STATE_WORDS, SUM_HIGH, SUM_LOW};
use super::channel::{Channel, Table};
use super::percpu::{self, ROUNDS};
use super::refusal::Dropped;
use super::ring_index::{CPU_ID, CPU_ID_OF_TABLE};
use super::rseq::{
    CellStart, CellUpdate, Rseq, Step, TRIES, count_in_cell, count_plain, count_value, update_cell,
};

/// The count in a state's word for a bucket.
const IN_BUCKET: u64 = (1 << LTT_COUNT_BUCKET_SHIFT) - 1;

/// What a channel counts of an event besides the event itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// None: the event does not have it, or the channel has no values.
    pub(crate) value: Option<CountedValue>,
    pub(crate) key: CountKey,
}

impl Counted {
    /// The event alone.
    pub(crate) const PLAIN: Self = Self {
        value: None,
        key: CountKey::NONE,
    };
}

/// The value of an integer field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedValue {
    /// Sign-extended if it is signed.
    pub(crate) bits: u64,
    pub(crate) signed: bool,
}

/// What events are counted apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountKey {
    len: u32,
    words: [u64; LTT_COUNT_KEY_MAX / 8],
}

impl CountKey {
    /// The event has none, or the channel asks for none.
    pub(crate) const NONE: Self = Self {
        len: 0,
        words: [0; LTT_COUNT_KEY_MAX / 8],
    };

    #[inline]
    pub(crate) fn number(number: u64) -> Self {
        Self {
            len: LTT_COUNT_KEY_NUMBER,
            words: [number, 0, 0, 0],
        }
    }

    /// The number, if there is one. None if the key is a text.
    #[inline]
    pub(crate) fn as_number(&self) -> Option<Option<u64>> {
        match self.len {
            0 => Some(None),
            LTT_COUNT_KEY_NUMBER => Some(Some(self.words[0])),
            _ => None,
        }
    }

    /// A text, of which the rest is cut off. An empty one is no key.
    pub(crate) fn text(bytes: impl Iterator<Item = u8>) -> Self {
        let mut key = Self::NONE;
        for byte in bytes.take(LTT_COUNT_KEY_MAX) {
            let at = key.len as usize;
            key.words[at / 8] |= u64::from(byte) << (at % 8 * 8);
            key.len += 1;
        }
        key
    }

    /// A number by which tables spread keys; 0 if there is none.
    #[inline]
    fn hash(&self) -> u32 {
        match self.len {
            0 => 0,
            LTT_COUNT_KEY_NUMBER => hash_of_number(self.words[0]),
            _ => self.words.into_iter().fold(0, mix) as u32,
        }
    }
}

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// What [`CountKey::hash`] is of a number.
#[inline(always)]
fn hash_of_number(number: u64) -> u32 {
    mix(0, number) as u32
}

impl Cell {
    /// Whether this cell, which is not free, is that of an event and key.
    #[inline]
    fn is_of(&self, name: u64, key: &CountKey) -> bool {
        let is = |at: usize| self.key[at].load(Ordering::Relaxed) == key.words[at];
        self.name.load(Ordering::Relaxed) == name
            && match key.len {
                // The other words are zeros.
                0 => true,
                LTT_COUNT_KEY_NUMBER => is(0),
                _ => (0..key.words.len()).all(is),
            }
    }
}

/// A cell that an event is to be counted in, as it was a moment ago.
struct Found<'a, 'k> {
    cell: &'a Cell,
    count: u64,
    name: u64,
    key: &'k CountKey,
}

impl<'a> Table<'a> {
    fn cell(&self, index: u64) -> &'a Cell {
        let cell = self.start.wrapping_add((index * self.cell_size) as usize);
        // SAFETY: in the table, as all callers pass an index below `cells`. `Channel::open`'s
        // caller promised that tables stay mapped; all in a cell is atomic.
        unsafe { &*cell.cast::<Cell>() }
    }

    /// The values of a cell of this table, if it has any.
    fn values(&self, cell: &'a Cell) -> Option<&'a CellValues> {
        if self.cell_size <= LTT_COUNT_CELL_PLAIN.into() {
            return None;
        }
        let values = std::ptr::from_ref(cell)
            .wrapping_add(1)
            .cast::<CellValues>();
        // SAFETY: cells of this size have them there, as the assertions above compare.
        Some(unsafe { &*values })
    }

    /// The cell of an event and key: the one that they have, or else a free one, or else the
    /// overflow cell.
    #[inline(always)]
    fn find<'k>(&self, id: u16, key: &'k CountKey) -> Found<'a, 'k> {
        let name = u64::from(id) | u64::from(key.len) << 32;
        // Cell 0 is the overflow cell.
        let others = self.cells - 1;
        // Ids follow each other, so cells of events without keys lie close together.
        let first = u64::from(id) + ((u64::from(key.hash()) * others) >> 32);
        let mut at = if first < others {
            first
        } else {
            first % others
        };
        for _ in 0..(LTT_COUNT_PROBES as u64).min(others) {
            let cell = self.cell(1 + at);
            // Pairs with the commit of the update that took the cell: its event and key were stored
            // before.
            let count = cell.count.load(Ordering::Acquire);
            if count == 0 || cell.is_of(name, key) {
                return Found {
                    cell,
                    count,
                    name,
                    key,
                };
            }
            at = if at + 1 < others { at + 1 } else { 0 };
        }
        let cell = self.cell(0);
        Found {
            cell,
            count: cell.count.load(Ordering::Acquire),
            name: 0,
            key: &CountKey::NONE,
        }
    }

    /// Counts an event in this table, which is that of a CPU in this channel.
    #[inline(always)]
    fn count(&self, rseq: Rseq, channel: &Channel, cpu: u32, id: u16, counted: &Counted) -> Step {
        let found = self.find(id, &counted.key);
        // Made twice: a copy of words that were just stored would wait for the stores.
        let start = || CellStart {
            epoch: self.epoch,
            cpu,
            cell: found.cell,
            count: found.count,
        };
        let values = self.values(found.cell);
        if values.is_none() && found.count != 0 {
            // SAFETY: made from this table.
            return unsafe { count_in_cell(rseq, channel, &start()) };
        }
        let (unused_word, unused) = (
            AtomicU64::new(0),
            [const { AtomicU64::new(0) }; STATE_WORDS],
        );
        let mut update = CellUpdate {
            start: start(),
            name: found.name,
            key: &raw const found.key.words,
            head: &raw const self.control.head,
            table_size: self.cells * self.cell_size,
            bucket: &raw const unused_word,
            folded: 0,
            state_at: &raw const unused,
            state: [0; STATE_WORDS],
        };
        if let Some(values) = values {
            values.next(&mut update, counted.value);
        }
        let is_first = found.count == 0 && self.control.head.load(Ordering::Relaxed) == 0;
        // SAFETY: the addresses were made from this table, or are of this function.
        let step = unsafe { update_cell(rseq, channel, &update) };
        if is_first
            && step == Step::Done
            && let Some(reader_wakeup) = channel.reader_wakeup()
        {
            // So that the reader begins the trace. Later, it looks when it wants to know.
            reader_wakeup.notify();
        }
        step
    }
}

impl CellValues {
    /// Computes what an update stores, from the state that belongs to its count.
    #[inline(always)]
    fn next(&self, update: &mut CellUpdate, value: Option<CountedValue>) {
        let count = update.start.count;
        let current = &self.state[count as usize % 2];
        let load = |word: usize| current[word].load(Ordering::Relaxed);
        let last = load(BUCKET);
        let last_bucket = (last >> LTT_COUNT_BUCKET_SHIFT) as usize % LTT_COUNT_BUCKETS;
        let is_first = last == 0;
        if !is_first {
            update.bucket = &raw const self.histogram[last_bucket];
            update.folded = last & IN_BUCKET;
        }
        let (mut low, mut high, mut min, mut max) =
            (load(SUM_LOW), load(SUM_HIGH), load(MIN), load(MAX));
        let mut in_bucket = last;
        if let Some(CountedValue { bits, signed }) = value {
            let bucket = bucket_of(bits, signed);
            let before = match !is_first && bucket == last_bucket {
                true => last,
                false => self.histogram[bucket].load(Ordering::Relaxed),
            };
            in_bucket = (bucket as u64) << LTT_COUNT_BUCKET_SHIFT;
            in_bucket |= before.wrapping_add(1) & IN_BUCKET;
            let carry;
            (low, carry) = low.overflowing_add(bits);
            let extension = match signed {
                true => (bits.cast_signed() >> 63).cast_unsigned(),
                false => 0,
            };
            high = high.wrapping_add(extension).wrapping_add(carry.into());
            // With their signs flipped, signed numbers compare as unsigned ones.
            let flip = if signed { 1 << 63 } else { 0 };
            if is_first || bits ^ flip < min ^ flip {
                min = bits;
            }
            if is_first || max ^ flip < bits ^ flip {
                max = bits;
            }
        }
        // Word by word: a copy of words that were just stored would wait for the stores.
        update.state[SUM_LOW] = low;
        update.state[SUM_HIGH] = high;
        update.state[MIN] = min;
        update.state[MAX] = max;
        update.state[BUCKET] = in_bucket;
        update.state_at = &raw const self.state[count.wrapping_add(1) as usize % 2];
    }
}

/// The fast path of an event that is counted: counts it in its cell, if it has one in the table of
/// this CPU, and reports whether it did. [`super::count`] does what this cannot do.
///
/// `route` is the word that led here, and where it is. `is_plain`: the cells have no values.
/// Otherwise, `value` has the event's value, and whether that is signed.
///
/// # Safety
/// `channel` was opened as [`Channel::open`] requires. In each opening in which `route` has that
/// word, the channel must have tables with such cells.
#[inline(always)]
pub(crate) unsafe fn count_directly(
    rseq: Rseq,
    channel: &Channel,
    route: (&AtomicU32, u32),
    id: &AtomicU16,
    is_plain: bool,
    value: impl FnOnce() -> Option<(u64, bool)>,
    key: impl FnOnce() -> Option<u64>,
) -> bool {
    let key = key().map(|key| (key, hash_of_number(key)));
    // SAFETY: the cells have values or not, as this function's caller promises; `bucket_of` returns
    // a bucket of the histogram.
    unsafe {
        if is_plain {
            return count_plain(rseq, channel, route, id, key);
        }
        match value() {
            None => false,
            Some((bits, false)) => {
                let value = (bits, bucket_of(bits, false));
                count_value::<false>(rseq, channel, route, id, value, key)
            }
            Some((bits, true)) => {
                let value = (bits, bucket_of(bits, true));
                count_value::<true>(rseq, channel, route, id, value, key)
            }
        }
    }
}

/// Counts an event in the table of this CPU.
#[inline]
pub(super) fn count(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    counted: &Counted,
) -> Result<(), Dropped> {
    let (mut rounds, mut aborts) = (0, 0);
    while rounds < ROUNDS && aborts < TRIES {
        rounds += 1;
        let cpu = rseq.index::<CPU_ID>();
        let Some(table) = channel.table_at(cpu) else {
            if !channel.counts() {
                return Err(Dropped::Closed);
            }
            rseq.join();
            if channel.table_at(rseq.index::<CPU_ID>()).is_none() {
                // The thread has no CPU number, or one without a table.
                break;
            }
            continue;
        };
        // Pairs with the store after the event was described, in this opening of the channel.
        let id = id.load(Ordering::Acquire);
        if id == 0 {
            return Err(Dropped::Closed);
        }
        match table.count(rseq, channel, cpu, id, counted) {
            Step::Done => return Ok(()),
            Step::Changed => {}
            Step::Aborted => aborts += 1,
        }
    }
    Err(lose(Some(rseq), channel))
}

/// Counts an event that no cell has as lost. `rseq`: none in a process without restartable
/// sequences.
#[cold]
pub(super) fn lose(rseq: Option<Rseq>, channel: &Channel) -> Dropped {
    if let Some(rseq) = rseq {
        let lost = percpu::lose::<CPU_ID_OF_TABLE>(rseq, channel);
        return lost.err().unwrap_or(Dropped::Lost);
    }
    match channel.table_at(0) {
        Some(table) => {
            table.control.lost.fetch_add(1, Ordering::Relaxed);
            Dropped::Lost
        }
        None => Dropped::Closed,
    }
}
