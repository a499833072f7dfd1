//! Errors of saved traces.

use std::io;
use std::path::PathBuf;

use crate::control_fs::ControlFsError;

/// Why traces cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedTraceError {
    /// The file or directory cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not the text of a saved trace.
    #[error("cannot load {path}: {what}")]
    NotText {
        /// The file.
        path: PathBuf,
        /// Why it is none.
        what: String,
    },
    /// A line of the file is wrong.
    #[error("{path}:{line}: {what}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The mistake.
        what: String,
    },
    /// A trace of this name exists.
    #[error(
        "{path}:{line}: there is already a trace {trace:?} (--replace removes it first; or change name)"
    )]
    Exists {
        /// The file.
        path: PathBuf,
        /// The line of its name, from 1.
        line: usize,
        /// The name.
        trace: String,
    },
    /// The kernel refused a line of the file.
    #[error("{path}:{line}: {place}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, and the trace and the channel that it belongs to.
        place: String,
        /// The refusal of the kernel.
        source: ControlFsError,
    },
    /// A trace cannot be read or removed.
    #[error(transparent)]
    ControlFs(#[from] ControlFsError),
}
