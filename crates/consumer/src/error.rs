//! Why nothing, or not everything, was recorded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use usertrace_os::procfs;

use super::control_fs::ControlFsError;
use super::ftrace::FtraceError;

/// Why what was recorded is not in its directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {path}")]
pub struct OutputError {
    /// The directory.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl OutputError {
    /// Makes one of what went wrong in `path`.
    pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self {
            path: path.to_owned(),
            source,
        }
    }
}

/// Why nothing, or not everything, was recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no program to run.
    #[error(
        "no program to run: usertrace record PROGRAM; without one, what runs is recorded, which takes a kernel that has \
         trace buffers (see usertrace doctor)"
    )]
    NoProgram,
    /// A process that was started without the fallback does not come to it.
    #[error(
        "programs that run already can be recorded only by a kernel that has trace buffers (see usertrace doctor)"
    )]
    RunsAlready,
    /// The control file system.
    #[error(transparent)]
    ControlFs(#[from] ControlFsError),
    /// The directory for the trace.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Another program consumes the trace.
    #[error(
        "another program consumes {path}{}, and what is in a ring is there for one only",
        opened_by(path)
    )]
    Busy {
        /// The file of a process and a channel.
        path: PathBuf,
    },
    /// The disk was full to the end.
    #[error(
        "{bytes} bytes of {processes} {} are in the rings and not in {}, where there is no room; they stay there, and the next \
         recorder with that directory goes on with them",
        if *processes == 1 { "process" } else { "processes" },
        path.display()
    )]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// How many processes have something that is not in the files.
        processes: usize,
        /// How much that is.
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
    /// A process that is to be recorded.
    #[error("there is no process {pid} to record")]
    NoProcess {
        /// Its id.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// The kernel's own events.
    #[error(transparent)]
    Ftrace(#[from] FtraceError),
    /// Something that does not usually fail.
    #[error("cannot {what}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Which other programs have a consumer file open, as far as that can be seen.
fn opened_by(path: &Path) -> String {
    // The file system may be mounted elsewhere, too.
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

/// Makes an error of a system call that does not usually fail.
pub(super) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> RecordError {
    move |error| RecordError::System {
        what,
        source: error.into(),
    }
}

/// An error with what caused it, in one line.
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
