//! Reads traces that [`usertrace_ctf`] wrote: those of all processes, merged by time (E8), and as
//! text.
//!
//! It reads what usertrace writes, and no other CTF: what it does not understand it says, and
//! leaves the rest to `babeltrace2`, with which it agrees byte by byte about what it prints.
//!
//! The files may be damaged, or still be written: nothing is taken for granted that they say. What
//! is wrong somewhere costs the rest of that packet, or of that stream, and nothing else. Of each
//! stream no more than a part is in memory.
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

mod completion;
mod declarations;
mod duplicates;
mod event;
mod field;
mod file;
mod fragments;
mod lost;
mod merge;
mod merged_stream;
mod metadata;
mod parser;
mod processes;
pub mod quoted;
mod shared_classes;
mod stream;
mod text;
mod time;
mod token;
mod trace;
pub mod value;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub use event::Event;
pub use field::Field;
pub use lost::{LossKind, Lost};
pub use merge::{Item, Reader};
pub use metadata::{Clock, EnvValue, EventClass, Metadata, StreamClass};
pub use text::Printer;
pub use time::Time;
pub use trace::Trace;
use usertrace_ctf::recording::is_recorded;
pub use usertrace_sys::filter::{PatternError, Patterns};
pub use value::{Enumeration, List, Number, Value, Values};

/// Whether anybody may still write to the traces in these directories: who records them, or else
/// their processes. `was_recorded` is for the next time: whether somebody was seen who records.
pub fn is_going_on(reader: &Reader, directories: &[PathBuf], was_recorded: &mut bool) -> bool {
    let traces = reader.traces();
    // What records may do so in chunks: then it is one level higher.
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
    // Who recorded it has come to the end, if processes have or not.
    if *was_recorded {
        return false;
    }
    let pids = || traces.iter().filter_map(|trace| trace.metadata().pid());
    traces.is_empty() || pids().any(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

/// Which events are asked for.
#[derive(Debug, Default)]
pub struct Selection {
    /// Those whose names are accepted; None: all.
    pub events: Option<Patterns>,
    /// Those of processes of these ids, and of those of `names`; neither: of all.
    pub pids: Vec<i64>,
    /// Names of processes, of which traces have as much as the kernel has.
    pub names: Vec<String>,
    /// Those from this time on, in ns since 1970.
    pub from: Option<i64>,
    /// Those up to this time.
    pub to: Option<i64>,
}

impl Selection {
    /// Is a trace of this process asked for?
    fn has_process(&self, pid: Option<i64>, name: Option<&str>) -> bool {
        let is_it = |wanted: &str| name.is_some_and(|name| name == comm(wanted));
        self.pids.is_empty() && self.names.is_empty()
            || pid.is_some_and(|pid| self.pids.contains(&pid))
            || self.names.iter().any(|wanted| is_it(wanted))
    }
}

/// A process's name as the kernel has it: at most 15 bytes of it.
#[must_use]
pub fn comm(name: &str) -> &str {
    const MAX: usize = 15;
    let ends = name.char_indices().map(|(start, c)| start + c.len_utf8());
    let end = ends.take_while(|&end| end <= MAX).last();
    &name[..end.unwrap_or(0)]
}

/// Something that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system says why not.
    #[error("{}: {error}", path.display())]
    Io {
        /// Of what.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no trace in a directory, nor below it.
    #[error("{}: there is no trace here", path.display())]
    NoTrace {
        /// The directory.
        path: PathBuf,
    },
    /// There are streams, and no metadata that say what is in them.
    #[error("{}: there are streams, but no metadata, so nobody can read them", path.display())]
    NoMetadata {
        /// The directory.
        path: PathBuf,
    },
    /// Whoever wrote a trace has ended before all was written.
    #[error(
        "{}: this trace is incomplete: its end is missing{}",
        path.display(),
        because(why)
    )]
    Incomplete {
        /// The directory.
        path: PathBuf,
        /// Why; empty if that is not known.
        why: String,
    },
    /// Streams that are there twice. They are read once.
    #[error("{} has the same streams as {}: each is read once", path.display(), of.display())]
    Duplicate {
        /// The directory of the trace whose streams are left out.
        path: PathBuf,
        /// That of the one whose streams are read.
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
        /// The line in it.
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
    /// The end of a stream that its writer could not write.
    #[error("{}, at byte {offset}: a packet is cut short after {bytes} bytes; events up to there are read", path.display())]
    CutShort {
        /// The file.
        path: PathBuf,
        /// The place in it.
        offset: u64,
        /// How many bytes of the packet are there.
        bytes: u64,
    },
    /// The end of the metadata that their writer could not write.
    #[error("{}, line {line}: a declaration that is not there as a whole is passed over", path.display())]
    MetadataCutShort {
        /// The file.
        path: PathBuf,
        /// The line in it.
        line: usize,
    },
}

/// The reason, if there is one, behind what it is the reason of.
fn because(why: &str) -> String {
    match why {
        "" => String::new(),
        why => format!(" ({})", usertrace_sys::printable(why)),
    }
}

impl ReadError {
    /// Is an end missing, as a writer leaves it that is killed or finds no room?
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::CutShort { .. } | Self::MetadataCutShort { .. })
    }

    /// Is something damaged, or missing? Else it is only to be known.
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
