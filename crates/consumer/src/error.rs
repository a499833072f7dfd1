//! Errors of recordings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use usertrace_os::procfs;

use super::control_fs::ControlFsError;
use super::ftrace::FtraceError;

/// An error when writing to the output directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {path}")]
pub struct OutputError {
    /// The directory.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl OutputError {
    /// Creates errors about `path`.
    pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self {
            path: path.to_owned(),
            source,
        }
    }
}

/// Why a recording failed, or is incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no program to run.
    #[error(
        "no program to run: usertrace record PROGRAM; without one, what runs is recorded, which takes a kernel that has \
         trace buffers (see usertrace doctor)"
    )]
    NoProgram,
    /// A running program cannot be switched to the fallback.
    #[error(
        "programs that run already can be recorded only by a kernel that has trace buffers (see usertrace doctor)"
    )]
    RunsAlready,
    /// The fallback has no triggers.
    #[error(
        "triggers need a kernel that has trace buffers (see usertrace doctor); without one, -e \"PATTERN if EXPR\" records \
         the events that matter, and usertrace view --follow --where EXPR shows them as they come"
    )]
    NoTriggers,
    /// The control file system reported an error.
    #[error(transparent)]
    ControlFs(#[from] ControlFsError),
    /// The output directory cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Another program consumes the trace.
    #[error(
        "another program consumes {path}{}, and what is in a ring is there for one only",
        opened_by(path)
    )]
    Busy {
        /// The consumer file that is busy.
        path: PathBuf,
    },
    /// The disk was still full at the end of the recording.
    #[error(
        "{bytes} bytes of {processes} {} are in the rings and not in {}, where there is no room; they stay there, and the next \
         recorder with that directory goes on with them",
        if *processes == 1 { "process" } else { "processes" },
        path.display()
    )]
    DiskFull {
        /// The directory.
        path: PathBuf,
        /// Processes whose rings have data that is in no file.
        processes: usize,
        /// The size of that data.
        bytes: u64,
    },
    /// The program cannot be run.
    #[error("cannot run {program}")]
    Program {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A process that was to be recorded does not exist.
    #[error("there is no process {pid} to record")]
    NoProcess {
        /// Its id.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// The kernel's own events cannot be recorded.
    #[error(transparent)]
    Ftrace(#[from] FtraceError),
    /// A system call failed that normally succeeds.
    #[error("cannot {what}")]
    System {
        /// What the call was for.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Names the other programs that have a consumer file open, as far as `/proc` shows them.
fn opened_by(path: &Path) -> String {
    // The file system may be mounted in several places, so compare only the last three components.
    let is_it =
        |other: &Path| (0..3).all(|n| path.iter().rev().nth(n) == other.iter().rev().nth(n));
    let opens = |pid: u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let mut files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.any(|file| is_it(&file))
    };
    let others = procfs::pids().filter(|&pid| pid != std::process::id() && opens(pid));
    let named = |pid| format!("{} ({pid})", procfs::name(pid).escape_debug());
    let mut names: Vec<_> = others.map(named).collect();
    names.sort();
    if names.is_empty() {
        String::new()
    } else {
        format!(", which is open in {}", names.join(", "))
    }
}

/// Creates errors for a system call that normally succeeds.
pub(super) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> RecordError {
    move |error| RecordError::System {
        what,
        source: error.into(),
    }
}

/// An error with its causes, on one line.
#[must_use]
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
