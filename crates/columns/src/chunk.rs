//! The pages of a column in a group of rows.
//!
//! The package `parquet` could make them, too. But it looks up each value in its dictionary, and
//! encodes values and levels one by one: that took half of the time of an export. So the pages are
//! made here, and the package writes them.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

/// Compressed pages are kept if they are this part smaller. Others would cost readers more time
/// than they save.
const SAVED: usize = 16;

/// The different values of a column.
#[derive(Debug)]
pub(crate) struct Dictionary {
    /// The values, in the encoding `PLAIN`.
    pub(crate) plain: Vec<u8>,
    pub(crate) len: u32,
}

/// The contents of the pages of a column.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) dictionary: Option<Dictionary>,
    /// The levels and the values, encoded.
    pub(crate) data: Vec<u8>,
    /// The encoding of the values.
    pub(crate) encoding: Encoding,
    /// Values, with those that are not there.
    pub(crate) values: u32,
    pub(crate) statistics: Statistics,
}

/// A column of a group of rows, as files have it.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    /// The metadata of the group for it.
    pub(crate) close: ColumnCloseResult,
}

impl Chunk {
    /// Makes the pages of a column of so many rows.
    pub(crate) fn new(
        of: &ColumnDescPtr,
        rows: usize,
        contents: Contents,
    ) -> Result<Self, ParquetError> {
        let Contents {
            dictionary,
            data,
            encoding,
            values,
            statistics,
        } = contents;
        let compressed = compressed(dictionary.as_ref(), &data)?;
        let is_compressed = compressed.is_some();
        let lens = [
            dictionary.as_ref().map_or(0, |of| of.plain.len()),
            data.len(),
        ];
        let of_dictionary = dictionary.as_ref().map(|of| of.len);
        let [plain, data] = compressed.unwrap_or_else(|| {
            let plain = dictionary.map_or_else(Vec::new, |of| of.plain);
            [plain, data]
        });
        let mut written = TrackedWrite::new(Vec::with_capacity(plain.len() + data.len() + 128));
        let mut writer = SerializedPageWriter::new(&mut written);
        let dictionary = of_dictionary.map(|len| {
            let page = Page::DictionaryPage {
                buf: plain.into(),
                num_values: len,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            writer.write_page(CompressedPage::new(page, lens[0]))
        });
        let dictionary = dictionary.transpose()?;
        let page = Page::DataPage {
            buf: data.into(),
            num_values: values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let data = writer.write_page(CompressedPage::new(page, lens[1]))?;
        writer.close()?;
        let pages = dictionary.iter().chain([&data]);
        let uncompressed: usize = pages.map(|page| page.uncompressed_size).sum();
        let written = written.into_inner()?;
        let mut encodings = vec![Encoding::RLE, encoding];
        encodings.extend(dictionary.as_ref().map(|_| Encoding::PLAIN));
        let metadata = ColumnChunkMetaData::builder(of.clone())
            .set_compression(match is_compressed {
                true => Compression::SNAPPY,
                false => Compression::UNCOMPRESSED,
            })
            .set_encodings(encodings)
            .set_num_values(values.into())
            .set_total_compressed_size(written.len() as i64)
            .set_total_uncompressed_size(uncompressed as i64)
            .set_dictionary_page_offset(dictionary.map(|page| page.offset as i64))
            .set_data_page_offset(data.offset as i64)
            .set_statistics(statistics)
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: written.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok(Self {
            bytes: written.into(),
            close,
        })
    }
}

/// Compresses the pages. None: they would be hardly smaller.
fn compressed(
    dictionary: Option<&Dictionary>,
    data: &[u8],
) -> Result<Option<[Vec<u8>; 2]>, ParquetError> {
    let plain = dictionary.map_or(&[][..], |of| &of.plain);
    let mut encoder = snap::raw::Encoder::new();
    let mut compress = |bytes: &[u8]| {
        let compressed = encoder.compress_vec(bytes);
        compressed.map_err(|error| ParquetError::External(Box::new(error)))
    };
    let compressed = [compress(plain)?, compress(data)?];
    let (before, after) = (
        plain.len() + data.len(),
        compressed.iter().map(Vec::len).sum::<usize>(),
    );
    Ok((after + before / SAVED < before).then_some(compressed))
}
