//! Records the kernel's own events together with those of programs, on one clock, from the same
//! start to the same stop (F9).
//!
//! ftrace records them in buffers of their own ([instances] of tracefs), which other users of
//! ftrace do not notice. A thread maps these buffers, and writes a further CTF trace with one
//! stream per CPU. If possible, ftrace takes its timestamps from the processor's counter, as
//! programs do, and the order of events is exact. Otherwise, it is as accurate as two readings of
//! the clock.
//!
//! The thread writes a page before it asks the kernel for the next one. So the successor of a
//! killed recorder finds the last page again. It skips the events up to the last time in the file.
//!
//! [instances]: https://docs.kernel.org/trace/ftrace.html#instances

mod cpu;
mod format;
mod page;
mod recorder;
mod ring;
mod summary;
mod tracefs;
mod worker;

use std::io;
use std::path::PathBuf;

pub use recorder::{KernelEvents, KernelOptions, KernelTrace};
pub use summary::KernelSummary;
pub use tracefs::Tracefs;

use format::FormatError;

use usertrace_sys::filter::PatternError;

/// Why the kernel's events cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FtraceError {
    /// tracefs is not available.
    #[error(
        "the kernel's own events need tracefs, which is not mounted (mount -t tracefs tracefs /sys/kernel/tracing), or \
         which this kernel does not have (CONFIG_FTRACE) or forbids (lockdown=confidentiality)"
    )]
    NoTracefs,
    /// A file in tracefs cannot be used.
    #[error("cannot use {} for the kernel's own events", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The format of an event cannot be parsed.
    #[error("cannot understand {}", path.display())]
    Format {
        /// The `format` file.
        path: PathBuf,
        /// The parse error.
        source: FormatError,
    },
    /// A pattern is invalid.
    #[error(transparent)]
    BadPattern(#[from] PatternError),
    /// No kernel event matches the patterns.
    #[error(
        "the kernel has no event {patterns} that can be recorded: {} names those that it has",
        list.display()
    )]
    NoEvent {
        /// The patterns.
        patterns: String,
        /// The file with all events.
        list: PathBuf,
    },
    /// The kernel's events are always recorded as one trace.
    #[error(
        "the kernel's own events cannot be recorded in chunks: leave out what makes chunks, or --kernel"
    )]
    InChunks,
    /// Their trace cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Its directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
