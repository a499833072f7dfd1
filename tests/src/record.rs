//! `usertrace record`, as a person types it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::babeltrace::{self, Read};
use crate::control::Trace;
use crate::{program, wait};

/// `usertrace record --quiet OPTIONS --output OUTPUT`: what it runs is to be added.
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

/// Has it run a program, with arguments. What that printed, and what was recorded.
///
/// # Panics
/// If the program fails, or the trace is not as it should be.
#[must_use]
pub fn run<S: AsRef<OsStr>>(program: &[S]) -> (Output, Read) {
    let traces = tempfile::tempdir().expect("a directory");
    let trace = traces.path().join("trace");
    let output = command(&[], &trace)
        .arg("--")
        .args(program)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    (output, babeltrace::read(&trace))
}

/// A recorder of a trace that is there; it is killed if it is dropped.
#[derive(Debug)]
pub struct Recorder(Child);

impl Recorder {
    /// Begins.
    ///
    /// # Panics
    /// If it cannot be run.
    #[must_use]
    pub fn start(trace: &Trace, output: &Path) -> Self {
        let child = command(&["--trace", trace.name()], output)
            .stdin(Stdio::null())
            .spawn()
            .expect("usertrace runs");
        Self(child)
    }

    /// Waits until it has read what all processes wrote, which must have ended or end now, and lets it end.
    ///
    /// # Panics
    /// If it does not succeed.
    pub fn finish(mut self, trace: &Trace) {
        wait::until("all was read", || trace.stats().processes.is_empty());
        let pid = Pid::from_raw(self.0.id().cast_signed());
        kill(pid, Signal::SIGINT).expect("asked to stop");
        let status = self.0.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // One that has ended is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
