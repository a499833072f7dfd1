//! What became of the attempt to trace this process.

use std::fmt;
use std::path::PathBuf;

use usertrace_sys::printable;
use usertrace_sys::{DiscoverError, Errno};

use super::info::BadArea;
use crate::writer::NoRseq;

/// Whether this process can be traced, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// [`init`](super::init) was not called.
    NotInitialised,
    /// It has buffers, or gets them as traces come.
    Attached,
    /// It was forked from a process that could be traced, and will get buffers of its own with its
    /// next event.
    Forked,
    /// `USERTRACE_BACKEND=off`.
    Off,
    /// `USERTRACE_BACKEND` is something unknown.
    UnknownBackend,
    /// The C library has no registered rseq area for each thread.
    NoRseq(NoRseq),
    /// The kernel has no trace buffers, or may not be asked.
    NoKernel(DiscoverError),
    /// The fallback cannot be used.
    NoFallback(NoFallback),
    /// `alloc_tracebuf` failed.
    NoBuffers(Errno),
    /// The kernel told something of the areas that cannot be, or that this library does not know.
    BadArea(BadArea),
    /// There was no memory for the library's own state.
    NoMemory,
}

/// Why the fallback cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoFallback {
    /// The crate was built without it.
    NotBuilt,
    /// The program was given more rights than whoever set its environment has.
    Secure,
    /// No ring has the sizes that the environment asks for.
    Sizes,
    /// The current directory has no name.
    Directory,
    /// This can be no part of a filter, or there is no room for it.
    Filter(&'static [u8]),
    /// No context has the name that the environment asks for, or it asks for more than there can
    /// be.
    Context(&'static [u8]),
    /// There is no memory for its buffers.
    Memory(Errno),
    /// Its process cannot be started.
    Process(Errno),
}

impl fmt::Display for NoFallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => f.write_str("this program was built without it"),
            Self::Secure => f.write_str("this program has more rights than who started it"),
            Self::Sizes => f.write_str("no ring has such a size"),
            Self::Directory => f.write_str("the current directory has no name"),
            Self::Filter(word) => {
                let word = word.escape_ascii();
                write!(
                    f,
                    "\"{word}\" is no pattern of events, or there are too many"
                )
            }
            Self::Context(name) => {
                let name = name.escape_ascii();
                write!(f, "no context is called \"{name}\", or there are too many")
            }
            Self::Memory(errno) => write!(f, "no memory for buffers: {errno}"),
            Self::Process(errno) => write!(f, "its process cannot be started: {errno}"),
        }
    }
}

/// Why a trace that is there gets no events of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum Refused {
    /// Its rings are of a kind, or of sizes, that this version of the library cannot write.
    Layout = 1,
    /// Its rings go by concurrency ids (`mm_cid`), and the kernel does not tell threads theirs.
    /// Events are counted as lost.
    NoMmCid,
    /// Its rings do not fit into the slots of this process, which `RLIMIT_AS` made smaller: the
    /// kernel passes over it.
    Limited,
    /// Its clock is one that this version of the library cannot read.
    Clock,
}

impl Refused {
    pub(super) fn from_number(number: u32) -> Option<Self> {
        let all = [Self::Layout, Self::NoMmCid, Self::Limited, Self::Clock];
        all.into_iter().find(|refused| *refused as u32 == number)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Layout => "this library cannot write rings as the trace has them",
            Self::Limited => "its rings do not fit into an eighth of this process's RLIMIT_AS (ulimit -v)",
            Self::Clock => "this library cannot read the trace's clock",
            Self::NoMmCid => "rings go by mm_cid, which the kernel does not tell threads (Linux does from 6.3 on)",
        })
    }
}

/// What traces are written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Buffers that the kernel owns.
    Kernel,
    /// The fallback.
    Fast,
}

/// What was chosen, and why: for people, and for tests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Whether this process can be traced.
    pub status: Status,
    /// What with, if it can.
    pub backend: Option<Backend>,
    /// Why it is not the kernel, if it is the fallback because the kernel was not to be had.
    pub no_kernel: Option<DiscoverError>,
    /// Fallback: where the traces go; none if nowhere.
    pub output: Option<PathBuf>,
    /// Fallback: process ids of the watchdog and the worker; 0: not there.
    pub daemons: [u32; 2],
    /// Fallback: why the traces cannot be written at present.
    pub error: Option<Errno>,
    /// `RLIMIT_AS` leaves so many bytes of address space: with the kernel for the rings of a trace,
    /// with the fallback for those of all processes. Nothing if it has no influence.
    pub limited: Option<u64>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.fmt(f)?;
        match self.backend {
            None => return Ok(()),
            Some(Backend::Kernel) => {
                f.write_str(", kernel")?;
                if let Some(len) = self.limited {
                    write!(f, ", rings limited to {len} bytes by RLIMIT_AS")?;
                }
                return Ok(());
            }
            Some(Backend::Fast) => f.write_str(", fast")?,
        }
        if let Some(error) = &self.no_kernel {
            write!(f, " ({error})")?;
        }
        match &self.output {
            Some(output) => write!(f, ", to {}", printable(&output.to_string_lossy()))?,
            None => f.write_str(", to nowhere")?,
        }
        write!(f, ", by {} and {}", self.daemons[0], self.daemons[1])?;
        if let Some(len) = self.limited {
            write!(f, ", rings limited to {len} bytes by RLIMIT_AS")?;
        }
        match &self.error {
            Some(error) => write!(f, ", at present not: {error}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInitialised => f.write_str("tracing was not initialised"),
            Self::Attached => f.write_str("attached"),
            Self::Forked => f.write_str("forked, attaches with the next event"),
            Self::Off => f.write_str("USERTRACE_BACKEND is off"),
            Self::UnknownBackend => {
                f.write_str("USERTRACE_BACKEND is none of auto, kernel, fast and off")
            }
            Self::NoRseq(NoRseq::Library) => f.write_str(
                "the C library registers no restartable sequences (glibc does from 2.35 on)",
            ),
            Self::NoRseq(NoRseq::Kernel) => f.write_str(
                "restartable sequences are not available, or switched off (glibc.pthread.rseq)",
            ),
            Self::NoKernel(error) => error.fmt(f),
            Self::NoFallback(error) => write!(f, "no fallback: {error}"),
            Self::NoBuffers(errno) => write!(f, "no trace buffers: {errno}"),
            Self::BadArea(bad) => bad.fmt(f),
            Self::NoMemory => f.write_str("no memory"),
        }
    }
}
