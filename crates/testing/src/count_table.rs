//! A simulated table of counters. It is written from the headers alone. An update is a list of
//! stores, and may stop before any of them.

use super::RingWriter;

/// Size of a cell with values, and offsets in it. The key follows the id.
const CELL: u64 = 640;
const ID: u64 = 8;
const STATES: [u64; 2] = [48, 88];
const HISTOGRAM: u64 = 128;
/// `key_len` of a number.
const NUMBER: u32 = 0xffff_ffff;

/// A key of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    None,
    Number(u64),
    Text(String),
}

/// A table of counters of signed values.
#[derive(Clone)]
pub struct CountTableWriter {
    pub bytes: Vec<u8>,
    cell_size: u64,
}

impl CountTableWriter {
    /// A table of `len` bytes.
    pub fn new(len: usize, has_values: bool) -> Self {
        Self {
            bytes: vec![0; len],
            cell_size: if has_values { CELL } else { 64 },
        }
    }

    fn word(&self, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    /// Makes a store of [`Self::update`].
    pub fn store(&mut self, (at, word): (u64, u64)) {
        let at = at as usize;
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// The head of a cell for this event and key: `id` and `key_len`, and the key.
    fn head(id: u32, key: &Key) -> [u64; 5] {
        let mut words = [0; 5];
        let len = match key {
            Key::None => 0,
            Key::Number(number) => {
                words[1] = *number;
                NUMBER
            }
            Key::Text(text) => {
                let text = &text.as_bytes()[..text.len().min(32)];
                for (n, byte) in text.iter().enumerate() {
                    words[1 + n / 8] |= u64::from(*byte) << (n % 8 * 8);
                }
                text.len() as u32
            }
        };
        words[0] = u64::from(len) << 32 | u64::from(id);
        words
    }

    /// The cell for this event and key, or the overflow cell.
    fn place(&self, id: u32, key: &Key) -> u64 {
        let cells = self.bytes.len() as u64 / self.cell_size;
        let head = Self::head(id, key);
        let sum = head.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        let place = |probe: u64| (1 + (sum.wrapping_add(probe)) % (cells - 1)) * self.cell_size;
        let is_right = |at: &u64| {
            let words = (0..5).map(|n| self.word(*at + ID + n * 8));
            self.word(*at) == 0 || words.eq(head)
        };
        (0..16).map(place).find(is_right).unwrap_or(0)
    }

    /// Whether an update of this event and key goes to the overflow cell.
    pub fn overflows(&self, id: u32, key: &Key) -> bool {
        self.place(id, key) == 0
    }

    /// The stores of an update, of which the last one commits it.
    pub fn update(&self, id: u32, key: &Key, value: Option<i64>) -> Vec<(u64, u64)> {
        let at = self.place(id, key);
        let count = self.word(at);
        let mut stores = Vec::new();
        if self.cell_size == CELL {
            let current = at + STATES[(count & 1) as usize];
            let next = at + STATES[(count & 1 ^ 1) as usize];
            let [low, high, min, max, bucket] =
                [0, 8, 16, 24, 32].map(|word| self.word(current + word));
            stores.push((at + HISTOGRAM + (bucket >> 56) * 8, bucket << 8 >> 8));
            let mut state = [low, high, min, max, bucket];
            if let Some(value) = value {
                let sum =
                    (u128::from(high) << 64 | u128::from(low)).wrapping_add_signed(value.into());
                let index = match value {
                    ..=0 => 0,
                    value => u64::from(64 - value.leading_zeros()).min(63),
                };
                let of_bucket = match index == bucket >> 56 {
                    true => bucket << 8 >> 8,
                    false => self.word(at + HISTOGRAM + index * 8),
                };
                let is_first = bucket == 0;
                let extreme = |other: i64| if is_first { value as u64 } else { other as u64 };
                state = [
                    sum as u64,
                    (sum >> 64) as u64,
                    extreme((min as i64).min(value)),
                    extreme((max as i64).max(value)),
                    index << 56 | (of_bucket + 1),
                ];
            }
            stores.extend((0..).step_by(8).map(|word| next + word).zip(state));
        }
        if count == 0 {
            let head = match at {
                0 => [0; 5],
                _ => Self::head(id, key),
            };
            stores.extend((0..).step_by(8).map(|word| at + ID + word).zip(head));
        }
        stores.push((at, count + 1));
        stores
    }

    /// Makes a whole update.
    pub fn count(&mut self, id: u32, key: &Key, value: Option<i64>) {
        for store in self.update(id, key, value) {
            self.store(store);
        }
    }

    /// The table in place of a ring with sub-buffers of this size.
    pub fn in_ring(&self, subbuf_size: u64) -> RingWriter {
        let count = self.bytes.len() as u64 / subbuf_size;
        RingWriter {
            bytes: self.bytes.clone(),
            head: self.bytes.len() as u64,
            cell_size: self.cell_size as u32,
            ..RingWriter::new(subbuf_size, count, 0)
        }
    }

    /// Replaces a page by what readers see of one for which there was no memory.
    pub fn lose_page(&mut self, page: usize) {
        let bytes = &mut self.bytes[page * 4096..][..4096];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&0x4c54_544c_4f53_fffb_u64.to_le_bytes());
        }
    }
}
