//! The fallback's daemons, as those wait for them who started a program.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// A directory that the daemons of some programs write to.
pub struct Output {
    directory: tempfile::TempDir,
    /// They hold a lock of it for as long as they write, so nobody has to guess when they are done.
    running: File,
}

impl Output {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let running = File::create(directory.path().join(".running")).unwrap();
        Self { directory, running }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Waits until no daemon is left.
    pub fn wait(&self) {
        for operation in [libc::LOCK_EX, libc::LOCK_UN] {
            // SAFETY: a descriptor of this process.
            let done = unsafe { libc::flock(self.running.as_raw_fd(), operation) };
            assert_eq!(done, 0);
        }
    }
}
