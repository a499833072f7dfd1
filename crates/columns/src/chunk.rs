//! The columns of origins in a group of rows, as Parquet has them: each value once, and for runs of
//! rows which of the values they have.
//!
//! The package `parquet` takes a value for each row, and looks each of them up. With that, these
//! columns took half of the time of an export. So their pages are made here; the package writes
//! them. The source of the encodings is Parquet's format, `Encodings.md`: `PLAIN`, and "RLE /
//! bit-packing hybrid".

use parquet::basic::{Compression, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use crate::origin::{Constant, Constants};

/// Encodes a column of a group of rows. Returns its pages, and what the group's metadata say of it.
pub(crate) fn chunk(
    of: &ColumnDescPtr,
    constants: &Constants<'_>,
) -> Result<(Vec<u8>, ColumnCloseResult), ParquetError> {
    let Constants { values, runs } = constants;
    let rows: u32 = runs.iter().map(|(_, rows)| rows).sum();
    let nulls = runs.iter().filter(|(index, _)| index.is_none());
    let nulls: u32 = nulls.map(|(_, rows)| rows).sum();
    let mut written = TrackedWrite::new(Vec::new());
    let mut writer = SerializedPageWriter::new(&mut written);
    let dictionary = match values.is_empty() {
        true => None,
        false => Some(writer.write_page(dictionary(values))?),
    };
    let data = writer.write_page(data(of.max_def_level() > 0, values.len(), runs, rows))?;
    writer.close()?;
    let pages = dictionary.iter().chain([&data]);
    let uncompressed: usize = pages.map(|page| page.uncompressed_size).sum();
    let written = written.into_inner()?;
    let metadata = ColumnChunkMetaData::builder(of.clone())
        .set_compression(Compression::UNCOMPRESSED)
        .set_encodings(vec![
            Encoding::PLAIN,
            Encoding::RLE,
            Encoding::RLE_DICTIONARY,
        ])
        .set_num_values(rows.into())
        .set_total_compressed_size(written.len() as i64)
        .set_total_uncompressed_size(uncompressed as i64)
        .set_dictionary_page_offset(dictionary.map(|page| page.offset as i64))
        .set_data_page_offset(data.offset as i64)
        .set_statistics(statistics(values, nulls.into()))
        .build()?;
    let close = ColumnCloseResult {
        bytes_written: written.len() as u64,
        rows_written: rows.into(),
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    Ok((written, close))
}

/// The page of the different values.
fn dictionary(values: &[&Constant]) -> CompressedPage {
    let mut plain = Vec::new();
    for value in values {
        match value {
            Constant::I32(value) => plain.extend(value.to_le_bytes()),
            Constant::I64(value) => plain.extend(value.to_le_bytes()),
            Constant::Text(text) => {
                plain.extend((text.len() as u32).to_le_bytes());
                plain.extend(text.as_bytes());
            }
        }
    }
    let len = plain.len();
    let page = Page::DictionaryPage {
        buf: plain.into(),
        num_values: values.len() as u32,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    };
    CompressedPage::new(page, len)
}

/// The page of the rows: whether each has a value, and which.
fn data(
    is_optional: bool,
    values: usize,
    runs: &[(Option<u32>, u32)],
    rows: u32,
) -> CompressedPage {
    let mut page = Vec::new();
    if is_optional {
        let levels = runs
            .iter()
            .map(|&(index, rows)| (index.is_some().into(), rows));
        let mut of_levels = Vec::new();
        hybrid(&mut of_levels, 1, levels);
        page.extend((of_levels.len() as u32).to_le_bytes());
        page.extend(of_levels);
    }
    let mut encoding = Encoding::PLAIN;
    if let Some(most) = values.checked_sub(1) {
        encoding = Encoding::RLE_DICTIONARY;
        // One bit at least: readers differ in what they take for none.
        let bits = (usize::BITS - most.leading_zeros()).max(1);
        page.push(bits as u8);
        let indices = runs
            .iter()
            .filter_map(|&(index, rows)| Some((index?, rows)));
        hybrid(&mut page, bits, indices);
    }
    let len = page.len();
    let page = Page::DataPage {
        buf: page.into(),
        num_values: rows,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    CompressedPage::new(page, len)
}

/// Appends numbers of so many bits, 1 to 32: as runs, or packed if that is shorter.
fn hybrid(to: &mut Vec<u8>, bits: u32, runs: impl Iterator<Item = (u32, u32)> + Clone) {
    let (mut numbers, mut of_runs) = (0, 0);
    for (_, rows) in runs.clone() {
        numbers += u64::from(rows);
        of_runs += varint_len(u64::from(rows) << 1) + bits.div_ceil(8) as u64;
    }
    // Groups of eight numbers, the last one filled up with zeros.
    let groups = numbers.div_ceil(8);
    let header = groups << 1 | 1;
    if groups * u64::from(bits) + varint_len(header) >= of_runs {
        for (number, rows) in runs {
            varint(to, u64::from(rows) << 1);
            to.extend(&number.to_le_bytes()[..bits.div_ceil(8) as usize]);
        }
        return;
    }
    varint(to, header);
    let (end, mut kept, mut len) = (to.len() + groups as usize * bits as usize, 0, 0);
    for (number, rows) in runs {
        for _ in 0..rows {
            kept |= u64::from(number) << len;
            len += bits;
            while len >= 8 {
                to.push(kept as u8);
                (kept, len) = (kept >> 8, len - 8);
            }
        }
    }
    if len > 0 {
        to.push(kept as u8);
    }
    to.resize(end, 0);
}

/// Appends a number, seven bits in each byte, the lowest first.
fn varint(to: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn varint_len(number: u64) -> u64 {
    u64::from((64 - number.leading_zeros()).div_ceil(7).max(1))
}

fn statistics(values: &[&Constant], nulls: u64) -> Statistics {
    let (least, most) = (values.iter().min(), values.iter().max());
    let i32 = |value: &&Constant| match value {
        Constant::I32(value) => Some(*value),
        _ => None,
    };
    let i64 = |value: &&Constant| match value {
        Constant::I64(value) => Some(*value),
        _ => None,
    };
    let text = |value: &&Constant| match value {
        Constant::Text(text) => Some(ByteArray::from(&text[..])),
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
        Some(Constant::Text(_)) | None => Statistics::byte_array(
            least.and_then(text),
            most.and_then(text),
            None,
            Some(nulls),
            false,
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads the encoding as the format describes it.
    fn decoded(mut bytes: &[u8], bits: u32, count: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            let (mut header, mut shift) = (0u64, 0);
            loop {
                let (&byte, rest) = bytes.split_first().unwrap();
                bytes = rest;
                header |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            let groups = (header >> 1) as usize;
            if header & 1 == 0 {
                let (number, rest) = bytes.split_at(bits.div_ceil(8) as usize);
                bytes = rest;
                let mut four = [0; 4];
                four[..number.len()].copy_from_slice(number);
                numbers.extend(std::iter::repeat_n(u32::from_le_bytes(four), groups));
                continue;
            }
            let (packed, rest) = bytes.split_at(groups * bits as usize);
            bytes = rest;
            let bit = |n: usize| u32::from(packed[n / 8] >> (n % 8) & 1);
            numbers.extend((0..groups * 8).map(|n| {
                (0..bits as usize).fold(0, |number, k| number | bit(n * bits as usize + k) << k)
            }));
        }
        assert_eq!(bytes, [] as [u8; 0]);
        numbers.truncate(count);
        numbers
    }

    proptest! {
        /// Readers find the numbers again, in as few bytes as the shorter of the two forms.
        #[test]
        fn numbers_are_encoded_as_the_format_says(
            bits in 1u32..=20,
            runs in prop::collection::vec((any::<u32>(), 1u32..40), 0..60),
        ) {
            let runs = runs.into_iter().map(|(number, rows)| (number & ((1 << bits) - 1), rows));
            let runs: Vec<_> = runs.collect();
            let numbers: Vec<u32> = runs
                .iter()
                .flat_map(|&(number, rows)| std::iter::repeat_n(number, rows as usize))
                .collect();
            let mut bytes = Vec::new();
            hybrid(&mut bytes, bits, runs.iter().copied());
            prop_assert!(bytes.len() <= numbers.len().div_ceil(8) * bits as usize + 10);
            prop_assert!(bytes.len() <= runs.len() * 4 + 10);
            prop_assert_eq!(decoded(&bytes, bits, numbers.len()), numbers);
        }
    }
}
