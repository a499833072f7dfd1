//! Reads tables of counters, which channels of mode `count` have in place of rings.
//!
//! `struct ltt_count_cell` in `sys/include/linux/ltt.h` defines a cell, and why a copy of it is
//! whole if its count is the same before and after the copy. A traced process may write anything
//! there at any time (F4), so the reader validates each cell, and retries a bounded number of
//! times.

use usertrace_sys::uapi::{
    LTT_COUNT_BUCKET_SHIFT, LTT_COUNT_BUCKETS, LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE,
    LTT_COUNT_KEY_MAX, LTT_COUNT_KEY_NUMBER, LTT_ID_MAX, LTT_LOST_WORD, LttCountCell,
    LttCountState,
};
use zerocopy::IntoBytes;

use crate::record::PAGE;
use crate::{Geometry, RingMemory};

/// How often a cell is copied until its count does not change meanwhile. A busy writer updates a
/// cell every 20 ns, and a copy takes 100 ns. The limit is a time in which each writer is
/// interrupted, as timers expire at least every 10 ms.
const COPIES_OF_CELL: u32 = 100_000;
/// Limit of these copies for a whole table, in which each cell may change all the time.
const COPIES_OF_TABLE: u32 = 4 * COPIES_OF_CELL;

/// Words of a cell.
const WORDS: usize = size_of::<LttCountCell>() / 8;

/// The layout of a channel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountTable {
    cell_size: u64,
    cells: u64,
}

/// A key by which events are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountKey {
    /// The event has no such field.
    None,
    /// A number, sign-extended to 64 bits if it has a sign.
    Number(u64),
    /// A text, cut off at 32 bytes.
    Text(Vec<u8>),
}

/// What a cell knows of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountValues {
    /// Sum of all values.
    pub sum: i128,
    /// The lowest value, signed if the field is. Undefined if there is no value.
    pub min: u64,
    /// The highest value, likewise.
    pub max: u64,
    /// Number of values in each bucket.
    pub histogram: [u64; LTT_COUNT_BUCKETS],
}

/// A whole cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountCell {
    /// Number of events.
    pub count: u64,
    /// Id of the event. None in the overflow cell.
    pub id: Option<u16>,
    /// The key.
    pub key: CountKey,
    /// What is known of the values, if the channel adds them up.
    pub values: Option<CountValues>,
}

/// What the reader passed over in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountGaps {
    /// Cells in pages for which there was no memory.
    pub lost: u64,
    /// Cells that a correct writer never writes.
    pub damaged: u64,
    /// Cells that changed too often to be copied.
    pub busy: u64,
}

impl CountGaps {
    /// Number of all cells that were passed over.
    #[must_use]
    pub fn cells(self) -> u64 {
        self.lost + self.damaged + self.busy
    }
}

impl CountValues {
    /// Number of values.
    #[must_use]
    pub fn number(&self) -> u64 {
        let buckets = self.histogram.iter();
        buckets.fold(0, |sum, bucket| sum.saturating_add(*bucket))
    }

    /// Adds the values of another cell. `signed` says whether they are.
    pub fn add(&mut self, other: &Self, signed: bool) {
        let order = |value: u64| match signed {
            true => i128::from(value.cast_signed()),
            false => i128::from(value),
        };
        match (self.number(), other.number()) {
            (_, 0) => {}
            (0, _) => (self.min, self.max) = (other.min, other.max),
            _ => {
                self.min = std::cmp::min_by_key(self.min, other.min, |value| order(*value));
                self.max = std::cmp::max_by_key(self.max, other.max, |value| order(*value));
            }
        }
        self.sum = self.sum.wrapping_add(other.sum);
        for (bucket, more) in self.histogram.iter_mut().zip(other.histogram) {
            *bucket = bucket.saturating_add(more);
        }
    }
}

impl CountTable {
    /// The layout of tables with cells of `cell_size` bytes in the space of rings of this geometry.
    /// None if there is no such cell.
    #[must_use]
    pub fn new(geometry: Geometry, cell_size: u32) -> Option<Self> {
        if ![LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE].contains(&cell_size) {
            return None;
        }
        let cell_size = u64::from(cell_size);
        Some(Self {
            cell_size,
            // At least 12, as a ring has at least 8 KiB.
            cells: geometry.ring_size() / cell_size,
        })
    }

    /// Number of cells, with the overflow cell.
    #[must_use]
    pub fn cells(self) -> u64 {
        self.cells
    }

    /// Whether cells have values.
    #[must_use]
    pub fn has_values(self) -> bool {
        self.cell_size == u64::from(LTT_COUNT_CELL_VALUE)
    }

    /// Reads the cells of a table that are in use, each as it was at one moment.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn read<E>(
        self,
        memory: &mut impl RingMemory,
        mut take: impl FnMut(CountCell) -> Result<(), E>,
    ) -> Result<CountGaps, E> {
        let mut gaps = CountGaps::default();
        let mut copies = COPIES_OF_TABLE;
        for index in 0..self.cells {
            match self.copy(memory, index, &mut copies) {
                Copied::Free => {}
                Copied::Lost => gaps.lost += 1,
                Copied::Busy => gaps.busy += 1,
                Copied::Whole(cell) => match self.parse(index, &cell) {
                    Some(cell) => take(cell)?,
                    None => gaps.damaged += 1,
                },
            }
        }
        Ok(gaps)
    }

    /// Copies a cell. `copies`: how many copies the table may still take.
    fn copy(self, memory: &mut impl RingMemory, index: u64, copies: &mut u32) -> Copied {
        let offset = index * self.cell_size;
        let mut left = COPIES_OF_CELL.min(*copies).max(1);
        loop {
            // Pairs with the writer's store of `count` (release): the state of this count is there.
            let count = memory.load(offset);
            if count == 0 {
                return Copied::Free;
            }
            let mut cell = LttCountCell::default();
            memory.read(offset, &mut cell.as_mut_bytes()[..self.cell_size as usize]);
            // The copy's loads are before this one (acquire). A writer begins to change the current
            // state only after it has stored another count.
            let is_same = memory.load(offset) == count && cell.count == count;
            if self.is_lost(index, &cell) {
                return Copied::Lost;
            }
            if is_same {
                return Copied::Whole(Box::new(cell));
            }
            left -= 1;
            *copies = copies.saturating_sub(1);
            if left == 0 {
                return Copied::Busy;
            }
            std::hint::spin_loop();
        }
    }

    /// Whether a part of the cell lies in a page for which there was no memory.
    fn is_lost(self, index: u64, cell: &LttCountCell) -> bool {
        let words: [u64; WORDS] = zerocopy::transmute!(*cell);
        let words = &words[..self.cell_size as usize / 8];
        let offset = index * self.cell_size;
        let to_page = (offset.next_multiple_of(PAGE) - offset) as usize / 8;
        // A cell is shorter than a page, so it lies in one or two.
        let (first, second) = words.split_at(to_page.min(words.len()));
        let is_lost =
            |part: &[u64]| !part.is_empty() && part.iter().all(|&word| word == LTT_LOST_WORD);
        is_lost(first) || is_lost(second)
    }

    /// Validates a cell. None if a correct writer never writes it.
    fn parse(self, index: u64, cell: &LttCountCell) -> Option<CountCell> {
        let id = match (index, cell.id) {
            (0, 0) => None,
            (1.., 1..) => Some(u16::try_from(cell.id).ok().filter(|&id| id <= LTT_ID_MAX)?),
            _ => return None,
        };
        let key = match cell.key_len {
            0 => CountKey::None,
            LTT_COUNT_KEY_NUMBER => CountKey::Number(cell.key[0]),
            len => {
                let bytes: [u8; LTT_COUNT_KEY_MAX] = zerocopy::transmute!(cell.key);
                CountKey::Text(bytes.get(..len as usize)?.to_vec())
            }
        };
        let values = match self.has_values() {
            true => Some(values(cell)?),
            false => None,
        };
        Some(CountCell {
            count: cell.count,
            id,
            key,
            values,
        })
    }
}

/// The current values of a cell. None if they are impossible.
fn values(cell: &LttCountCell) -> Option<CountValues> {
    let LttCountState {
        sum_low,
        sum_high,
        min,
        max,
        bucket,
    } = cell.state[(cell.count & 1) as usize];
    let mut histogram = cell.histogram;
    let place = histogram.get_mut((bucket >> LTT_COUNT_BUCKET_SHIFT) as usize)?;
    *place = bucket & ((1 << LTT_COUNT_BUCKET_SHIFT) - 1);
    let number = histogram
        .iter()
        .try_fold(0u64, |sum, bucket| sum.checked_add(*bucket))?;
    let sum = (u128::from(sum_high) << 64 | u128::from(sum_low)).cast_signed();
    (number <= cell.count).then_some(CountValues {
        sum,
        min,
        max,
        histogram,
    })
}

/// The result of copying a cell.
enum Copied {
    Free,
    Lost,
    Busy,
    Whole(Box<LttCountCell>),
}
