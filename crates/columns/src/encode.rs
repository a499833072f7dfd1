//! Values of a column, encoded.
//!
//! Integers are written as differences. If they have few different values whose differences take
//! more bits, such as addresses of code, they get a dictionary. So do texts and floating-point
//! numbers that repeat. Other values are written plainly.

use std::ops::BitXor;

use ahash::RandomState;
use parquet::basic::Encoding;
use parquet::data_type::ByteArray;
use parquet::file::statistics::Statistics;

use crate::chunk::{Contents, Dictionary};
use crate::origin::{Constant, Constants};
use crate::packing::{self, delta, hybrid, hybrid_of};
use crate::schema::{Column, Count, Kind};
use crate::values::{Data, Levels, Symbols, Texts, Values};

/// Values that `different_texts` looks at before it decides whether they repeat.
const SAMPLE: usize = 1024;
/// The longest text in statistics, in bytes.
const LONGEST: usize = 64;

/// Encodes a column.
pub(crate) fn column(of: &Column, values: &Values) -> Contents {
    let len = values.len();
    let (mut data, mut nulls) = (Vec::new(), 0);
    let is_signed = matches!(of.kind, Kind::Integer { signed: true, .. });
    let encode = |to: &mut Vec<u8>, of: &[bool]| {
        let runs = of.chunk_by(|a, b| a == b);
        levels(to, runs.map(|run| (run[0].into(), run.len() as u32)));
    };
    match &values.levels {
        Levels::All if of.count == Count::One => {}
        Levels::All => levels(&mut data, std::iter::once((1, len as u32))),
        Levels::Some(definition) => {
            encode(&mut data, definition);
            nulls = absent(definition);
        }
        Levels::Lists {
            definition,
            repetition,
        } => {
            encode(&mut data, repetition);
            encode(&mut data, definition);
            nulls = absent(definition);
        }
    }
    let (dictionary, encoding, statistics) = match &values.data {
        Data::I32(numbers) => {
            let flip = if is_signed { 0 } else { i32::MIN };
            let (least, most) = span_of_integers(numbers, flip);
            let (dictionary, encoding) = integers(&mut data, numbers);
            let statistics = Statistics::int32(least, most, None, Some(nulls), false);
            (dictionary, encoding, statistics)
        }
        Data::I64(numbers) => {
            let flip = if is_signed { 0 } else { i64::MIN };
            let (least, most) = span_of_integers(numbers, flip);
            let (dictionary, encoding) = integers(&mut data, numbers);
            let statistics = Statistics::int64(least, most, None, Some(nulls), false);
            (dictionary, encoding, statistics)
        }
        Data::F32(numbers) => {
            let (least, most) = span_of_floats(numbers.iter().copied().map(f64::from));
            // They were of this width before.
            let narrow = |of: Option<f64>| of.map(|of| of as f32);
            let (least, most) = (narrow(least), narrow(most));
            let bits = numbers.iter().map(|number| number.to_bits().to_le_bytes());
            let (dictionary, encoding) = fixed(&mut data, bits);
            let statistics = Statistics::float(least, most, None, Some(nulls), false);
            (dictionary, encoding, statistics)
        }
        Data::F64(numbers) => {
            let (least, most) = span_of_floats(numbers.iter().copied());
            let bits = numbers.iter().map(|number| number.to_bits().to_le_bytes());
            let (dictionary, encoding) = fixed(&mut data, bits);
            let statistics = Statistics::double(least, most, None, Some(nulls), false);
            (dictionary, encoding, statistics)
        }
        Data::Texts(of) => texts(&mut data, of, nulls),
        Data::Symbols(symbols) => {
            let Symbols { values, rows, .. } = symbols;
            let texts = values.iter().map(|value| &value[..]);
            let dictionary = plain_texts(texts.clone());
            let statistics = statistics_of_texts(texts, nulls);
            let encoding = indices(&mut data, values.len(), rows);
            (dictionary, encoding, statistics)
        }
    };
    Contents {
        dictionary,
        data,
        encoding,
        values: len as u32,
        statistics,
    }
}

/// Encodes a column of origins.
pub(crate) fn constants(is_optional: bool, constants: &Constants<'_>) -> Contents {
    let Constants { values, runs } = constants;
    let (mut data, mut rows, mut nulls) = (Vec::new(), 0, 0);
    for (index, len) in runs {
        rows += len;
        nulls += if index.is_none() { u64::from(*len) } else { 0 };
    }
    if is_optional {
        let of = runs.iter();
        levels(
            &mut data,
            of.map(|&(index, rows)| (index.is_some().into(), rows)),
        );
    }
    let mut encoding = Encoding::PLAIN;
    if let Some(bits) = width(&mut data, values.len()) {
        let of = runs.iter();
        hybrid(
            &mut data,
            bits,
            of.filter_map(|&(index, rows)| Some((index?, rows))),
        );
        encoding = Encoding::RLE_DICTIONARY;
    }
    let mut plain = Vec::new();
    for value in values {
        match value {
            Constant::I32(value) => plain.extend(value.to_le_bytes()),
            Constant::I64(value) => plain.extend(value.to_le_bytes()),
            Constant::Text(text) => plain_text(&mut plain, text.as_bytes()),
        }
    }
    let len = values.len() as u32;
    Contents {
        dictionary: (len > 0).then_some(Dictionary { plain, len }),
        data,
        encoding,
        values: rows,
        statistics: statistics_of_constants(values, nulls),
    }
}

/// Appends levels, which are 0 or 1, with the length of their encoding.
fn levels(to: &mut Vec<u8>, runs: impl Iterator<Item = (u32, u32)> + Clone) {
    let at = to.len();
    to.extend([0; 4]);
    hybrid(to, 1, runs);
    let len = (to.len() - at - 4) as u32;
    to[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

fn absent(definition: &[bool]) -> u64 {
    definition.iter().filter(|&&is_there| !is_there).count() as u64
}

/// Appends the width of indices of so many values. Returns it. None: there are no values.
fn width(to: &mut Vec<u8>, values: usize) -> Option<u32> {
    // One bit at least: readers differ in what they take for none.
    let bits = (usize::BITS - values.checked_sub(1)?.leading_zeros()).max(1);
    to.push(bits as u8);
    Some(bits)
}

/// Appends indices of values in a dictionary.
fn indices(to: &mut Vec<u8>, values: usize, rows: &[u32]) -> Encoding {
    let Some(bits) = width(to, values) else {
        return Encoding::PLAIN;
    };
    hybrid_of(to, bits, rows);
    Encoding::RLE_DICTIONARY
}

/// Numbers as differences, or with a dictionary if that takes at most half of the bytes.
fn integers<T: packing::Integer>(
    to: &mut Vec<u8>,
    numbers: &[T],
) -> (Option<Dictionary>, Encoding) {
    if numbers.is_empty() {
        return (None, Encoding::PLAIN);
    }
    let before = to.len();
    delta(to, numbers);
    let len = to.len() - before;
    // The most values whose indices have half of the bits of a difference. This also bounds the
    // time to look for them: with many different values, there are soon too many.
    let bits = (len * 8 / numbers.len()) as u32;
    let most = (1 << (bits / 2).min(16)).min(len / 4 / size_of::<T>());
    let wide = |number: &T| number.wide().cast_unsigned();
    // Differences of few bits are read and written faster than indices of fewer.
    if bits >= 4
        && let Some((values, rows)) = different(numbers.iter().map(wide), most)
    {
        to.truncate(before);
        let encoding = indices(to, values.len(), &rows);
        return (plain_numbers(&values, size_of::<T>()), encoding);
    }
    (None, Encoding::DELTA_BINARY_PACKED)
}

/// Floating-point numbers: with a dictionary if there are few different ones.
fn fixed<const N: usize>(
    to: &mut Vec<u8>,
    numbers: impl ExactSizeIterator<Item = [u8; N]> + Clone,
) -> (Option<Dictionary>, Encoding) {
    let most = (numbers.len() / 4).min(1 << 12);
    let bits = numbers.clone().map(|number| {
        let mut eight = [0; 8];
        eight[..N].copy_from_slice(&number);
        u64::from_le_bytes(eight)
    });
    let Some((values, rows)) = different(bits, most) else {
        to.extend(numbers.flatten());
        return (None, Encoding::PLAIN);
    };
    let encoding = indices(to, values.len(), &rows);
    (plain_numbers(&values, N), encoding)
}

/// A dictionary of numbers of so many bytes. None if there is none.
fn plain_numbers(numbers: &[u64], bytes: usize) -> Option<Dictionary> {
    let plain = numbers.iter().map(|number| number.to_le_bytes());
    let plain = plain.flat_map(|number| number.into_iter().take(bytes));
    (!numbers.is_empty()).then(|| Dictionary {
        plain: plain.collect(),
        len: numbers.len() as u32,
    })
}

/// The different numbers, and which of them each one is. None: there are more.
fn different(numbers: impl Iterator<Item = u64>, most: usize) -> Option<(Vec<u64>, Vec<u32>)> {
    let (mut values, mut rows) = (Vec::new(), Vec::with_capacity(numbers.size_hint().0));
    let mut table = Table::new(most);
    for number in numbers {
        // Programs choose the numbers, and must not know which of them collide.
        let hash = number.wrapping_mul(table.secret);
        let index = table.index(hash, |index| values[index as usize] == number)?;
        if index as usize == values.len() {
            values.push(number);
        }
        rows.push(index);
    }
    Some((values, rows))
}

/// A hash table of indices.
struct Table {
    /// Indices plus 1; 0 for none. There are at least twice as many as values.
    slots: Vec<u32>,
    /// The highest bits of a hash are a slot.
    shift: u32,
    len: u32,
    most: u32,
    /// An odd number.
    secret: u64,
}

impl Table {
    /// A table for so many values.
    fn new(most: usize) -> Self {
        let slots = (2 * most).next_power_of_two().max(2);
        Self {
            slots: vec![0; slots],
            shift: u64::BITS - slots.trailing_zeros(),
            len: 0,
            most: most as u32,
            secret: RandomState::new().hash_one(most) | 1,
        }
    }

    /// The index of a value: of the same one, or the next index. None: there are no more.
    #[inline]
    fn index(&mut self, hash: u64, is_same: impl Fn(u32) -> bool) -> Option<u32> {
        let mut slot = (hash >> self.shift) as usize;
        while let Some(index) = self.slots[slot].checked_sub(1) {
            if is_same(index) {
                return Some(index);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        if self.len == self.most {
            return None;
        }
        self.len += 1;
        self.slots[slot] = self.len;
        Some(self.len - 1)
    }
}

/// Texts: with a dictionary if they repeat.
fn texts(
    to: &mut Vec<u8>,
    texts: &Texts,
    nulls: u64,
) -> (Option<Dictionary>, Encoding, Statistics) {
    if let Some((values, rows)) = different_texts(texts) {
        let encoding = indices(to, values.len(), &rows);
        let values = values.iter().copied();
        let statistics = statistics_of_texts(values.clone(), nulls);
        return (plain_texts(values), encoding, statistics);
    }
    to.reserve(texts.bytes.len() + 4 * texts.ends.len());
    for text in texts.iter() {
        plain_text(to, text);
    }
    let statistics = statistics_of_texts(texts.iter(), nulls);
    (None, Encoding::PLAIN, statistics)
}

/// The different texts, and which of them each one is. None: hardly one is there twice.
fn different_texts(texts: &Texts) -> Option<(Vec<&[u8]>, Vec<u32>)> {
    let len = texts.ends.len();
    let most = (len / 4).clamp(len.min(SAMPLE), 1 << 16);
    let (mut values, mut rows) = (Vec::new(), Vec::with_capacity(len));
    let (mut table, hashes) = (Table::new(most), RandomState::new());
    for (n, text) in texts.iter().enumerate() {
        if n == SAMPLE && values.len() > SAMPLE - SAMPLE / 16 {
            return None;
        }
        let hash = hashes.hash_one(text);
        let index = table.index(hash, |index| values[index as usize] == text)?;
        if index as usize == values.len() {
            values.push(text);
        }
        rows.push(index);
    }
    Some((values, rows))
}

fn plain_text(to: &mut Vec<u8>, text: &[u8]) {
    to.extend((text.len() as u32).to_le_bytes());
    to.extend(text);
}

/// A dictionary of texts. None if there is none.
fn plain_texts<'a>(texts: impl ExactSizeIterator<Item = &'a [u8]>) -> Option<Dictionary> {
    let (mut plain, len) = (Vec::new(), texts.len() as u32);
    for text in texts {
        plain_text(&mut plain, text);
    }
    (len > 0).then_some(Dictionary { plain, len })
}

fn span<T: Ord + Copy>(mut values: impl Iterator<Item = T>) -> (Option<T>, Option<T>) {
    let Some(first) = values.next() else {
        return (None, None);
    };
    let (least, most) = values.fold((first, first), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    (Some(least), Some(most))
}

/// Unsigned numbers are in the order of signed ones without the highest bit, which `flip` has then.
fn span_of_integers<T>(numbers: &[T], flip: T) -> (Option<T>, Option<T>)
where
    T: BitXor<Output = T> + Ord + Copy,
{
    let (least, most) = span(numbers.iter().map(|&number| number ^ flip));
    (least.map(|of| of ^ flip), most.map(|of| of ^ flip))
}

/// The format wants -0 for the least and 0 for the most, and nothing if there is no order.
fn span_of_floats(mut values: impl Iterator<Item = f64> + Clone) -> (Option<f64>, Option<f64>) {
    if values.clone().any(f64::is_nan) {
        return (None, None);
    }
    let Some(first) = values.next() else {
        return (None, None);
    };
    let (least, most) = values.fold((first, first), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    (Some(-(0.0 - least)), Some(most + 0.0))
}

/// Statistics of texts, without the values of long ones.
fn statistics_of_texts<'a>(texts: impl Iterator<Item = &'a [u8]>, nulls: u64) -> Statistics {
    let (least, most) = span(texts);
    let is_short = [least, most]
        .iter()
        .flatten()
        .all(|text| text.len() <= LONGEST);
    let value = |of: Option<&[u8]>| {
        of.filter(|_| is_short)
            .map(|of| ByteArray::from(of.to_vec()))
    };
    Statistics::byte_array(value(least), value(most), None, Some(nulls), false)
}

fn statistics_of_constants(values: &[&Constant], nulls: u64) -> Statistics {
    let (least, most) = (values.iter().min(), values.iter().max());
    let i32 = |value: &&Constant| match value {
        Constant::I32(value) => Some(*value),
        _ => None,
    };
    let i64 = |value: &&Constant| match value {
        Constant::I64(value) => Some(*value),
        _ => None,
    };
    match least {
        Some(Constant::I32(_)) => Statistics::int32(
            least.and_then(i32),
            most.and_then(i32),
            None,
            Some(nulls),
            false,
        ),
        Some(Constant::I64(_)) => Statistics::int64(
            least.and_then(i64),
            most.and_then(i64),
            None,
            Some(nulls),
            false,
        ),
        Some(Constant::Text(_)) | None => {
            let texts = values.iter().filter_map(|value| match value {
                Constant::Text(text) => Some(text.as_bytes()),
                _ => None,
            });
            statistics_of_texts(texts, nulls)
        }
    }
}
