//! Where the fallback writes the traces of a test's programs.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output};

/// A directory for traces, which the fallback's daemons lock as long as there are any.
#[derive(Debug)]
pub(crate) struct Traces {
    directory: tempfile::TempDir,
    running: File,
}

impl Traces {
    /// In `/tmp`, whose name `LD_PRELOAD` can hold: it has neither spaces nor colons.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let running = File::create(directory.path().join(".running")).unwrap();
        Self { directory, running }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Has a program use the fallback, and write here.
    pub(crate) fn of<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("USERTRACE_BACKEND", "fast")
            .env("USERTRACE_OUTPUT", self.path())
    }

    /// What `babeltrace2` says of them when all is written.
    pub(crate) fn read(&self) -> Output {
        // SAFETY: a descriptor of this process.
        let locked = unsafe { libc::flock(self.running.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(locked, 0);
        Command::new("babeltrace2")
            .arg(self.path())
            .output()
            .unwrap()
    }
}
