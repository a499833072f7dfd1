//! The directory to which the fallback writes the traces of a test's programs.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::babeltrace::{self, Read};

/// A directory for traces. The fallback's daemons hold a lock of it as long as they run.
#[derive(Debug)]
pub struct Traces {
    directory: tempfile::TempDir,
    running: File,
}

impl Traces {
    /// An empty directory.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it makes something")]
    pub fn new() -> Self {
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        let running = File::create(directory.path().join(".running")).expect("a file");
        Self { directory, running }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes a program use the fallback, with this directory.
    pub fn of<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("USERTRACE_BACKEND", "fast")
            .env("USERTRACE_OUTPUT", self.path())
    }

    /// Waits until all is written, and reads it.
    ///
    /// # Panics
    /// If `babeltrace2` finds anything wrong.
    #[must_use]
    pub fn read(&self) -> Read {
        self.wait();
        babeltrace::read(self.path())
    }

    /// Waits until all is written.
    ///
    /// # Panics
    /// If it cannot.
    pub fn wait(&self) {
        // SAFETY: a descriptor of this process.
        let locked = unsafe { libc::flock(self.running.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(locked, 0);
    }

    /// The traces: one for each process that wrote something. Call [`Traces::wait`] before.
    ///
    /// # Panics
    /// If the directory cannot be read.
    #[must_use]
    pub fn processes(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path()).expect("the directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths
            .filter(|path| path.join("metadata").exists())
            .collect()
    }
}
