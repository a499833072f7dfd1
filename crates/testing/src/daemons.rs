//! Waiting for the fallback's daemons of a test's programs.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for daemons to end. Only a failing test waits so long.
const LIMIT: Duration = Duration::from_secs(120);

/// An output directory of the daemons of some programs.
pub struct Output {
    directory: tempfile::TempDir,
    /// The daemons hold a shared lock of this file while they write, so the test knows when they
    /// are done.
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
        // SAFETY: the descriptor is open as long as `self.running`.
        unsafe { libc::flock(self.running.as_raw_fd(), operation) == 0 }
    }
}
