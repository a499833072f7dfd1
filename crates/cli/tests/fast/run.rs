//! Runs this test's own program, traced by the fallback.

use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};

use super::trace::{self, Trace};
use usertrace_testing::daemons::Output;

/// Names the program (`programs.rs`) that this process runs.
pub(crate) const VARIABLE: &str = "USERTRACE_FAST_TEST";

/// A directory for the traces of one run.
pub(crate) struct Run(Output);

impl Run {
    pub(crate) fn new() -> Self {
        Self(Output::new())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
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
    pub(crate) fn output(&self, program: &str, variables: &[(&str, &str)]) -> process::Output {
        self.start(program, variables).wait_with_output().unwrap()
    }

    /// Runs a program that must succeed, and returns its output.
    pub(crate) fn success(&self, program: &str, variables: &[(&str, &str)]) -> String {
        let output = self.output(program, variables);
        assert_success(output.status, &output.stderr);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until no daemon is left.
    pub(crate) fn wait(&self) {
        self.0.wait();
    }

    /// Waits until all traces are written, and returns their directories.
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
