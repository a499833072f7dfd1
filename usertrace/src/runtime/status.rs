//! What became of the attempt to trace this process.

use std::fmt;

use usertrace_sys::{DiscoverError, Errno};

use crate::writer::NoRseq;

/// Whether this process can be traced, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// [`init`](super::init) was not called.
    NotInitialised,
    /// It has buffers, or gets them as traces come.
    Attached,
    /// It was forked from a process that could be traced, and will get buffers of its own with its next event.
    Forked,
    /// `USERTRACE_BACKEND=off`.
    Off,
    /// `USERTRACE_BACKEND` is something unknown.
    UnknownBackend,
    /// The C library has no registered rseq area for each thread.
    NoRseq(NoRseq),
    /// The kernel has no trace buffers, or may not be asked.
    NoKernel(DiscoverError),
    /// `alloc_tracebuf` failed.
    NoBuffers(Errno),
    /// There was no memory for the library's own state.
    NoMemory,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInitialised => f.write_str("tracing was not initialised"),
            Self::Attached => f.write_str("attached"),
            Self::Forked => f.write_str("forked, attaches with the next event"),
            Self::Off => f.write_str("USERTRACE_BACKEND is off"),
            Self::UnknownBackend => f.write_str("USERTRACE_BACKEND is neither kernel nor off"),
            Self::NoRseq(NoRseq::Library) => f.write_str(
                "the C library registers no restartable sequences (glibc does from 2.35 on)",
            ),
            Self::NoRseq(NoRseq::Kernel) => f.write_str(
                "restartable sequences are not available, or switched off (glibc.pthread.rseq)",
            ),
            Self::NoKernel(error) => error.fmt(f),
            Self::NoBuffers(errno) => write!(f, "no trace buffers: {errno}"),
            Self::NoMemory => f.write_str("no memory"),
        }
    }
}
