//! The fallback's daemons, as those wait for them who started a program.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long daemons may take to end. Only a failing test waits so long.
const LIMIT: Duration = Duration::from_secs(120);

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
        let begun = Instant::now();
        while !self.lock(libc::LOCK_EX | libc::LOCK_NB) {
            let path = self.path().display();
            assert!(begun.elapsed() < LIMIT, "a daemon still writes to {path}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(self.lock(libc::LOCK_UN));
    }

    /// Takes or releases the lock. Returns false while a daemon holds it.
    fn lock(&self, operation: libc::c_int) -> bool {
        // SAFETY: a descriptor of this process.
        unsafe { libc::flock(self.running.as_raw_fd(), operation) == 0 }
    }
}
