//! Runs this test's own program, traced by the fallback.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use super::trace::{self, Trace};

/// Says which of the programs (`programs.rs`) this process is.
pub(crate) const VARIABLE: &str = "USERTRACE_FAST_TEST";

/// A directory for the traces of one run.
pub(crate) struct Run {
    directory: tempfile::TempDir,
    running: File,
}

impl Run {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The daemons hold a lock of it, so nobody here has to guess when they are done.
        let running = File::create(directory.path().join(".running")).unwrap();
        Self { directory, running }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A command that runs one of the programs.
    pub(crate) fn command(&self, program: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .env(VARIABLE, program)
            .env("USERTRACE_BACKEND", "fast")
            .env("USERTRACE_OUTPUT", self.path())
            .envs(variables.iter().copied());
        command
    }

    pub(crate) fn start(&self, program: &str, variables: &[(&str, &str)]) -> Child {
        self.command(program, variables)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs a program to its end.
    pub(crate) fn output(&self, program: &str, variables: &[(&str, &str)]) -> Output {
        self.start(program, variables).wait_with_output().unwrap()
    }

    /// Runs a program that must succeed, and gives what it printed.
    pub(crate) fn success(&self, program: &str, variables: &[(&str, &str)]) -> String {
        let output = self.output(program, variables);
        assert_success(output.status, &output.stderr);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until no daemon is left.
    pub(crate) fn wait(&self) {
        for operation in [libc::LOCK_EX, libc::LOCK_UN] {
            // SAFETY: a descriptor of this process.
            let done = unsafe { libc::flock(self.running.as_raw_fd(), operation) };
            assert_eq!(done, 0);
        }
    }

    /// Directories of the traces, when all of them are written.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        self.wait();
        trace::directories(self.path())
    }

    /// The only trace.
    pub(crate) fn trace(&self) -> Trace {
        let directories = self.directories();
        assert_eq!(directories.len(), 1, "{directories:?}");
        trace::read(&directories[0])
    }
}

pub(crate) fn assert_success(status: ExitStatus, stderr: &[u8]) {
    assert!(
        status.success(),
        "{status}: {}",
        String::from_utf8_lossy(stderr)
    );
}
