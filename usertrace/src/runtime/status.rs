//! Whether and how this process is traced: status, back end, and reasons.

use std::fmt;
use std::path::PathBuf;

use usertrace_expression::ParseError;
use usertrace_sys::printable;
use usertrace_sys::{DiscoverError, Errno};

use super::info::BadArea;
use crate::writer::RseqError;

/// Whether this process can be traced, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// [`init`](super::init) was not called.
    NotInitialised,
    /// The process has buffers, or gets them as traces come.
    Attached,
    /// The process was forked from one that could be traced. Its next event gets buffers of its
    /// own.
    Forked,
    /// `USERTRACE_BACKEND=off`.
    Off,
    /// `USERTRACE_BACKEND` has an unknown value.
    UnknownBackend,
    /// The C library has no registered rseq area for each thread.
    NoRseq(RseqError),
    /// The kernel has no trace buffers, or denies access to them.
    NoKernel(DiscoverError),
    /// The fallback cannot be used.
    NoFallback(NoFallback),
    /// `alloc_tracebuf` failed.
    NoBuffers(Errno),
    /// The kernel reported an area layout that is invalid or unknown to this library.
    BadArea(BadArea),
    /// No memory for the library's own state.
    NoMemory,
}

/// Why the fallback cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoFallback {
    /// The crate was built without it.
    NotBuilt,
    /// The program has more rights than the user who set its environment.
    Secure,
    /// The environment asks for invalid sizes of rings.
    Sizes,
    /// The current directory has no name.
    Directory,
    /// This word of the filter is invalid, or does not fit.
    Filter(&'static [u8]),
    /// This condition of the filter is no expression, or too long.
    Condition(&'static [u8], Option<ParseError>),
    /// The environment names an unknown context, or too many contexts.
    Context(&'static [u8]),
    /// This line does not say what to count, or there are too many.
    Count(&'static [u8]),
    /// Events are to be counted, but there are no restartable sequences.
    CountWithoutRseq,
    /// No memory for its buffers.
    Memory(Errno),
    /// Its daemons cannot be started.
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
            Self::Condition(text, error) => {
                let text = text.escape_ascii();
                write!(f, "\"{text}\" is no condition")?;
                match error {
                    Some(error) => write!(f, ": at byte {}, {error}", error.place().start),
                    None => f.write_str(": it is too long, or has control characters"),
                }
            }
            Self::Context(name) => {
                let name = name.escape_ascii();
                write!(f, "no context is called \"{name}\", or there are too many")
            }
            Self::Count(line) => {
                let line = line.escape_ascii();
                write!(
                    f,
                    "\"{line}\" does not say what to count, or there are too many"
                )
            }
            Self::CountWithoutRseq => f.write_str("counting needs restartable sequences (rseq)"),
            Self::Memory(errno) => write!(f, "no memory for buffers: {errno}"),
            Self::Process(errno) => write!(f, "its process cannot be started: {errno}"),
        }
    }
}

/// Why a trace gets no events of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum Refused {
    /// This version of the library cannot write rings of its layout.
    Layout = 1,
    /// Its rings are per concurrency id (`mm_cid`), which the kernel does not provide. Events are
    /// counted as lost.
    NoMmCid,
    /// Its rings do not fit into the slots of this process, which `RLIMIT_AS` reduced: the kernel
    /// passes over it.
    Limited,
    /// This version of the library cannot read its clock.
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

/// The back end that records traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Buffers that the kernel owns.
    Kernel,
    /// The fallback.
    Fast,
}

/// The chosen back end and the reasons, for people and for tests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Whether this process can be traced.
    pub status: Status,
    /// The back end, if the process can be traced.
    pub backend: Option<Backend>,
    /// Why the kernel is not used, if the fallback is used because the kernel is not available.
    pub no_kernel: Option<DiscoverError>,
    /// Fallback: the directory of the traces; none if they are discarded.
    pub output: Option<PathBuf>,
    /// Fallback: process ids of the watchdog and the worker; 0 if it does not run.
    pub daemons: [u32; 2],
    /// Fallback: why the traces cannot be written now.
    pub error: Option<Errno>,
    /// Bytes of address space that `RLIMIT_AS` leaves: with the kernel, for the rings of one trace;
    /// with the fallback, for those of all processes. None if it has no effect.
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
        match self.daemons {
            [0, 0] => f.write_str(", by no process at present")?,
            [daemon, 0] | [0, daemon] => write!(f, ", by {daemon}")?,
            [watchdog, worker] => write!(f, ", by {watchdog} and {worker}")?,
        }
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
            Self::NoRseq(RseqError::Library) => f.write_str(
                "the C library registers no restartable sequences (glibc does from 2.35 on)",
            ),
            Self::NoRseq(RseqError::Kernel) => f.write_str(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_name_the_daemons_that_run() {
        let report = |daemons| {
            let report = Report {
                status: Status::Attached,
                backend: Some(Backend::Fast),
                no_kernel: None,
                output: Some("traces".into()),
                daemons,
                error: None,
                limited: None,
            };
            report.to_string()
        };
        let all = ", to traces, by ";
        for (daemons, expected) in [
            ([0, 0], "no process at present"),
            ([7, 0], "7"),
            ([0, 8], "8"),
            ([7, 8], "7 and 8"),
        ] {
            let report = report(daemons);
            let (_, by) = report.split_once(all).unwrap();
            assert_eq!(by, expected);
        }
    }
}
