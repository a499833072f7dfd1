//! The command `usertrace record`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::control::Trace;
use crate::program;
use crate::running::Running;
use usertrace_testing::babeltrace::{self, Read};
use usertrace_testing::wait;

/// `usertrace record --quiet OPTIONS --output OUTPUT`, without a program to run.
#[must_use]
pub fn command(options: &[&str], output: &Path) -> Command {
    let mut command = Command::new(program::path("usertrace"));
    command
        .args(["record", "--quiet"])
        .args(options)
        .arg("--output")
        .arg(output);
    command
}

/// Records a program with arguments. Returns the program's output, and the directory of the trace.
///
/// # Panics
/// If the program fails, or cannot be recorded.
#[must_use]
pub fn run_into<S: AsRef<OsStr>>(program: &[S]) -> (Output, TempDir) {
    let trace = tempfile::tempdir().expect("a directory");
    let output = command(&[], trace.path())
        .arg("--")
        .args(program)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    (output, trace)
}

/// Like [`run_into`], and reads the trace.
///
/// # Panics
/// As [`run_into`], or if `babeltrace2` finds anything wrong.
#[must_use]
pub fn run<S: AsRef<OsStr>>(program: &[S]) -> (Output, Read) {
    let (output, trace) = run_into(program);
    (output, babeltrace::read(trace.path()))
}

/// A recorder of an existing trace. Dropping it kills it.
#[derive(Debug)]
pub struct Recorder(Running);

impl Recorder {
    /// Starts the recorder.
    ///
    /// # Panics
    /// If it cannot be run.
    #[must_use]
    pub fn start(trace: &Trace, output: &Path) -> Self {
        let mut command = command(&["--trace", trace.name()], output);
        Self(Running::start(command.stdin(Stdio::null())))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.0.id().cast_signed())
    }

    /// Waits until it has read the events of all processes, which must have ended or end now, and
    /// stops it.
    ///
    /// # Panics
    /// If it does not succeed.
    pub fn finish(mut self, trace: &Trace) {
        wait::until("all was read", || trace.stats().processes.is_empty());
        kill(self.pid(), Signal::SIGINT).expect("asked to stop");
        let status = self.0.wait();
        assert!(status.success(), "{status}");
    }
}
