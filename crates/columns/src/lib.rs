//! Writes traces as columns: [Parquet](https://parquet.apache.org) files, in directories that query
//! engines such as DuckDB and Spark know as partitions.
//!
//! ```text
//! DIR/host=web1/date=2026-11-27/event=libc%3Amalloc/part-000001.parquet
//! ```
//!
//! Each event is a row of the table of its kind, with a typed column for each field. Losses are
//! rows of a table of their own, `event=lost`. Functions, files and lines at code addresses have
//! columns as well, if the caller finds them ([`Columns::named_event`]). `docs/how-to/columns.md`
//! describes the columns.
//!
//! This is a crate of its own, and not a part of `usertrace-report`: with `parquet` come 12
//! packages that nothing else here needs, and a command that is built without its feature `parquet`
//! has none of them. It is built on `parquet` alone, without `arrow`: the pages of columns are made
//! here, and the package writes them.
//!
//! # Threads
//!
//! The thread that reads the trace copies each event's bytes to the rows of its table. A second
//! thread takes groups of rows apart, one field of all rows at a time, encodes the columns, and
//! writes them.
//!
//! # Memory
//!
//! Rows wait in memory until there are enough of them for a group of rows ([`Limits::rows`],
//! [`Limits::group_bytes`]). If the rows of all tables take more than [`Limits::bytes`], the
//! largest tables are written until they take three quarters of that. Besides, there are up to
//! three groups: one waits and one is written, and the memory of one is kept for later rows, as
//! long as there are few tables. While a group is written, its columns take up to three times its
//! memory, and more if its texts are not UTF-8. At most [`Limits::open_files`] files are open:
//! before another one is opened, the file that was written the longest ago is completed. Later rows
//! of its table begin a new file.
//!
//! # Errors
//!
//! The directory appears as a whole at the end, and it is not there after an error.

mod chunk;
mod code;
mod columns;
mod destination;
mod encode;
mod fields;
mod file;
mod files;
mod names;
mod origin;
mod packing;
mod rows;
mod schema;
mod shape;
mod split;
mod time;
mod values;

use std::io;
use std::path::{Path, PathBuf};

pub use columns::{Columns, Limits};
pub use destination::is_export;
pub use names::directory;

/// An export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnsError {
    /// A file or directory cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file or directory, as it would be called after the export.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The directory has files that no export wrote.
    #[error("{}: this directory is not empty, and not of an earlier export; name another one", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// There is no thread that writes.
    #[error("cannot start the thread that writes files: {0}")]
    Thread(io::Error),
    /// The thread that writes has ended without an error.
    #[error("the thread that writes files has ended")]
    Ended,
}

impl ColumnsError {
    fn write(path: &Path, error: io::Error) -> Self {
        Self::Write {
            path: path.to_owned(),
            error,
        }
    }
}
