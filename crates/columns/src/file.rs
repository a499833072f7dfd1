//! A Parquet file that is being written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;

use crate::chunk::{Chunk, Contents};
use crate::schema::{self, Column};

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
        let properties = WriterProperties::builder()
            .set_created_by(concat!("usertrace ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_offset_index_disabled(true)
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

    /// Writes a group of so many rows, whose columns these are.
    pub(crate) fn write(&mut self, rows: usize, columns: Vec<Option<Contents>>) -> io::Result<()> {
        self.try_write(rows, columns).map_err(error)
    }

    fn try_write(
        &mut self,
        rows: usize,
        columns: Vec<Option<Contents>>,
    ) -> Result<(), ParquetError> {
        let descriptor = self.writer.schema_descr().clone();
        let mut group = self.writer.next_row_group()?;
        for (of, contents) in descriptor.columns().iter().zip(columns) {
            // Without a column, closing the group is an error.
            if let Some(contents) = contents {
                let chunk = Chunk::new(of, rows, contents)?;
                group.append_column(&chunk.bytes, chunk.close)?;
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
