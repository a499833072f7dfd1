//! The kernel's own events beside those of programs: on one clock, from one start to one stop (F9).
//!
//! It is ftrace that records them, into buffers of its own ([instances] of tracefs, which other
//! users of ftrace do not notice); a thread maps these, and writes them as one more CTF trace,
//! whose streams are those of the CPUs. Where the kernel can, it takes its time stamps from the
//! processor's counter, as programs do: then the order of events is exact, else it is as good as
//! two readings of the clock.
//!
//! What a page has is written before the kernel is asked for the next one. So a recorder that was
//! killed finds the last page once more, and from the time of what is in the file it knows what to
//! leave out.
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

use usertrace_sys::filter::BadPattern;

/// Why the kernel's events are not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FtraceError {
    /// There is no tracefs.
    #[error(
        "the kernel's own events need tracefs, which is not mounted (mount -t tracefs tracefs /sys/kernel/tracing), or \
         which this kernel does not have (CONFIG_FTRACE)"
    )]
    NoTracefs,
    /// One of its files refuses what is to be done.
    #[error("cannot use {} for the kernel's own events", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What an event is made of is not understood.
    #[error("cannot understand {}", path.display())]
    Format {
        /// The file that says it.
        path: PathBuf,
        /// Where.
        source: FormatError,
    },
    /// That is no pattern.
    #[error(transparent)]
    BadPattern(#[from] BadPattern),
    /// None of these is an event of the kernel's.
    #[error(
        "the kernel has no event {patterns} that can be recorded: {} names those that it has",
        list.display()
    )]
    NoEvent {
        /// As they were given.
        patterns: String,
        /// The file.
        list: PathBuf,
    },
    /// They are in one trace as long as they are recorded.
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
