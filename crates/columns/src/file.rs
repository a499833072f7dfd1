//! A Parquet file that is being written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::ColumnPath;

use crate::chunk::chunk;
use crate::rows::{Buffer, Data, Rows};
use crate::schema::{self, Column};

/// Values that are handed to the encoder at once: those of text are copied for it.
const BATCH: usize = 4096;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
}

/// An error about a file, with the system's error if that is the reason.
pub(crate) fn error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

impl OpenFile {
    /// Creates a file. `metadata` are names and values for its end.
    pub(crate) fn create(
        path: &Path,
        columns: &[Column],
        metadata: &[(&str, &str)],
    ) -> io::Result<Self> {
        let metadata = metadata
            .iter()
            .map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned()));
        // Neighbouring times have small differences.
        let time = ColumnPath::from("time");
        let properties = WriterProperties::builder()
            .set_created_by(concat!("usertrace ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY)
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_column_dictionary_enabled(time.clone(), false)
            .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED)
            .set_key_value_metadata(Some(metadata.collect()))
            .build();
        let schema = schema::of_file(columns).map_err(error)?;
        let file = File::create_new(path)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties));
        Ok(Self {
            path: path.to_owned(),
            writer: writer.map_err(error)?,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that it has so far.
    pub(crate) fn len(&self) -> usize {
        self.writer.bytes_written()
    }

    /// How many groups of rows it has: each takes memory until the end of the file is written.
    pub(crate) fn groups(&self) -> usize {
        self.writer.flushed_row_groups().len()
    }

    /// Writes a group of rows.
    pub(crate) fn write(&mut self, rows: Rows) -> io::Result<()> {
        self.try_write(rows).map_err(error)
    }

    fn try_write(&mut self, mut rows: Rows) -> Result<(), ParquetError> {
        let descriptor = self.writer.schema_descr().clone();
        let mut group = self.writer.next_row_group()?;
        for (index, of) in descriptor.columns().iter().enumerate() {
            if let Some(constants) = rows.of_origins(index) {
                let (pages, close) = chunk(of, &constants)?;
                group.append_column(&Bytes::from(pages), close)?;
                continue;
            }
            if let (Some(mut column), Some(buffer)) = (group.next_column()?, rows.take(index)) {
                write_column(&mut column, buffer)?;
                column.close()?;
            }
        }
        group.close()?;
        Ok(())
    }

    /// Writes the end of the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.writer.finish().map_err(error)?;
        self.writer.inner_mut().flush()
    }
}

fn write_column(to: &mut SerializedColumnWriter<'_>, buffer: Buffer) -> Result<(), ParquetError> {
    let (definition, repetition) = (&buffer.definition[..], &buffer.repetition[..]);
    match buffer.data {
        Data::I32(values) => write::<Int32Type>(to, &values, definition, repetition),
        Data::I64(values) => write::<Int64Type>(to, &values, definition, repetition),
        Data::F32(values) => write::<FloatType>(to, &values, definition, repetition),
        Data::F64(values) => write::<DoubleType>(to, &values, definition, repetition),
        Data::Bytes(bytes, ends) => {
            let bytes = ByteArray::from(bytes);
            let mut start = 0;
            let values = ends.into_iter().map(|end| {
                let value = bytes.slice(start, end - start);
                start = end;
                value
            });
            write_texts(to, values, definition)
        }
        Data::Symbols(symbols) => {
            let rows = symbols.rows.iter();
            let values = rows.map(|&number| symbols.values[number as usize].clone());
            write_texts(to, values, definition)
        }
    }
}

fn write<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
    definition: &[i16],
    repetition: &[i16],
) -> Result<(), ParquetError> {
    let levels = |levels| Some(levels).filter(|levels: &&[i16]| !levels.is_empty());
    let (definition, repetition) = (levels(definition), levels(repetition));
    to.typed::<T>()
        .write_batch(values, definition, repetition)?;
    Ok(())
}

/// Writes texts, or other values of any length. No row has several of them.
fn write_texts(
    to: &mut SerializedColumnWriter<'_>,
    mut values: impl Iterator<Item = ByteArray>,
    definition: &[i16],
) -> Result<(), ParquetError> {
    let mut batch = Vec::with_capacity(BATCH);
    if definition.is_empty() {
        loop {
            batch.clear();
            batch.extend(values.by_ref().take(BATCH));
            if batch.is_empty() {
                return Ok(());
            }
            write::<ByteArrayType>(to, &batch, &[], &[])?;
        }
    }
    for levels in definition.chunks(BATCH) {
        let count = levels.iter().filter(|&&level| level > 0).count();
        batch.clear();
        batch.extend(values.by_ref().take(count));
        write::<ByteArrayType>(to, &batch, levels, &[])?;
    }
    Ok(())
}
