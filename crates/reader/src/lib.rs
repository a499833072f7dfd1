//! Reads traces that [`usertrace_ctf`] wrote, merges the streams of all processes by time (E8), and
//! prints events as text.
//!
//! It reads what usertrace writes, and no other CTF. It reports whatever it does not understand;
//! `babeltrace2` reads other traces. The text is byte-identical to that of `babeltrace2`.
//!
//! The files may be damaged, or still be written, so the reader validates everything. An error
//! costs the rest of its packet, or of its stream, and nothing else. Of each stream, only a part is
//! in memory.
//!
//! ```no_run
//! use usertrace_reader::{Item, ReadError, Reader, Selection};
//!
//! let mut reader = Reader::open(&["traces".into()], Selection::default())?;
//! while let Some(item) = reader.next() {
//!     if let Item::Event(event) = item {
//!         println!("{} of {:?}", event.class.name, event.trace.metadata().pid());
//!     }
//! }
//! # Ok::<(), ReadError>(())
//! ```

mod binding;
mod completion;
mod condition;
mod correction;
mod counts;
mod declarations;
mod duplicates;
mod duration;
mod event;
mod field;
mod file;
mod fragments;
mod host;
mod hosts;
mod lost;
mod merge;
mod merged_stream;
mod metadata;
mod parser;
mod processes;
pub mod quoted;
mod shared_classes;
mod stream;
pub mod sync;
mod text;
mod time;
mod token;
mod trace;
pub mod value;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub use binding::Binding;
pub use condition::{Condition, ConditionError, Declared, Occurrence, ProcessOf, fields_of};
pub use correction::Correction;
pub use counts::{Counter, Counters};
pub use duration::duration;
pub use event::Event;
pub use field::Field;
pub use host::{Corrections, HostId};
pub use hosts::{Host, Hosts};
pub use lost::{LossKind, Lost};
pub use merge::{Item, Reader};
pub use metadata::{Clock, EnvValue, EventClass, Metadata, StreamClass};
pub use text::Printer;
pub use time::Time;
pub use trace::Trace;
use usertrace_ctf::recording::is_recorded;
pub use usertrace_sys::filter::{PatternError, Patterns};
pub use value::{Enumeration, List, Number, Value, Values};

/// Whether a recorder, or without one the traced processes, may still write to the traces in these
/// directories. `was_recorded` is state for the next call: whether a recorder was seen.
pub fn is_going_on(reader: &Reader, directories: &[PathBuf], was_recorded: &mut bool) -> bool {
    let traces = reader.traces();
    // A recorder that writes chunks has its files one level higher.
    let parents = traces.iter().filter_map(|trace| trace.directory().parent());
    let chunks = parents.clone().filter_map(Path::parent);
    let parents: BTreeSet<&Path> = parents
        .chain(chunks)
        .chain(directories.iter().map(PathBuf::as_path))
        .collect();
    if parents.into_iter().any(is_recorded) {
        *was_recorded = true;
        return true;
    }
    // The recorder has finished, whether the processes have ended or not.
    if *was_recorded {
        return false;
    }
    let pids = || traces.iter().filter_map(|trace| trace.metadata().pid());
    traces.is_empty() || pids().any(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

/// Selects the events to read.
#[derive(Debug, Default)]
pub struct Selection {
    /// Patterns of event names. None selects all.
    pub events: Option<Patterns>,
    /// Condition on the values of events. None selects all.
    pub condition: Option<Condition>,
    /// Process ids. Without any, and without `names`, all processes are selected.
    pub pids: Vec<i64>,
    /// Names of processes, which traces have as the kernel truncates them.
    pub names: Vec<String>,
    /// First time, in ns since 1970.
    pub from: Option<i64>,
    /// Last time, in ns since 1970.
    pub to: Option<i64>,
    /// Return all events about the modules that processes have loaded, whatever else is selected.
    /// Otherwise, none of them is returned.
    pub modules: bool,
    /// Corrections of the hosts' clocks. `from` and `to` are corrected times.
    pub corrections: Corrections,
}

impl Selection {
    /// Whether traces of this process are selected.
    fn has_process(&self, pid: Option<i64>, name: Option<&str>) -> bool {
        let is_named = |wanted: &str| name.is_some_and(|name| name == comm(wanted));
        self.pids.is_empty() && self.names.is_empty()
            || pid.is_some_and(|pid| self.pids.contains(&pid))
            || self.names.iter().any(|wanted| is_named(wanted))
    }
}

/// Truncates a process name like the kernel does: to 15 bytes.
#[must_use]
pub fn comm(name: &str) -> &str {
    const MAX: usize = 15;
    let ends = name.char_indices().map(|(start, c)| start + c.len_utf8());
    let end = ends.take_while(|&end| end <= MAX).last();
    &name[..end.unwrap_or(0)]
}

/// What cannot be read, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A system call failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// There is no trace in or below a directory.
    #[error("{}: there is no trace here", path.display())]
    NoTrace {
        /// The directory.
        path: PathBuf,
    },
    /// There are streams without metadata that describe them.
    #[error("{}: there are streams, but no metadata, so nobody can read them", path.display())]
    NoMetadata {
        /// The directory.
        path: PathBuf,
    },
    /// The writer of a trace ended before it wrote everything.
    #[error(
        "{}: this trace is incomplete: its end is missing{}",
        path.display(),
        because(why)
    )]
    Incomplete {
        /// The directory.
        path: PathBuf,
        /// The reason; empty if it is unknown.
        why: String,
    },
    /// Two copies of the same streams. One is read.
    #[error("{} has the same streams as {}: each is read once", path.display(), of.display())]
    Duplicate {
        /// The directory of the trace whose streams are skipped.
        path: PathBuf,
        /// The directory of the trace whose streams are read.
        of: PathBuf,
    },
    /// Metadata that usertrace has not written.
    #[error(
        "{}, line {line}: {what}; only what usertrace writes is read here, babeltrace2 reads other traces",
        path.display()
    )]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A stream that usertrace has not written so.
    #[error("{}, at byte {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A stream that ends within a packet.
    #[error("{}, at byte {offset}: a packet is cut short after {bytes} bytes; events up to there are read", path.display())]
    CutShort {
        /// The file.
        path: PathBuf,
        /// The place in it.
        offset: u64,
        /// How many bytes of the packet are there.
        bytes: u64,
    },
    /// Metadata that end within a declaration.
    #[error("{}, line {line}: a declaration that is not there as a whole is passed over", path.display())]
    MetadataCutShort {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
}

/// Formats a reason, if there is one.
fn because(why: &str) -> String {
    match why {
        "" => String::new(),
        why => format!(" ({})", usertrace_sys::printable(why)),
    }
}

impl ReadError {
    /// Whether only an end is missing, as after a killed writer or on a full disk.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::CutShort { .. } | Self::MetadataCutShort { .. })
    }

    /// Whether events are damaged or missing. Otherwise it is only a warning.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::Duplicate { .. })
    }

    fn io(path: &Path, error: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            error,
        }
    }

    fn of_stream(path: &Path, error: stream::StreamError) -> Self {
        let path = path.to_owned();
        match error {
            stream::StreamError::Damage { offset, what } => Self::Damaged { path, offset, what },
            stream::StreamError::Io(error) => Self::Io { path, error },
        }
    }
}
