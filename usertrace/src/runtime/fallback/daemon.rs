//! What both daemons have: the watchdog and the worker.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::clock::TraceClock;
use super::destination::Output;
use super::pool::Pool;
use crate::os::futex::RobustList;

/// How many daemons in a row may fail.
const FAILURES: u32 = 16;

/// What the daemons know from the start.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Task {
    pub(super) pool: Pool,
    pub(super) output: Output,
    pub(super) clock: TraceClock,
}

/// The life of a watchdog that replaces another one: of this worker's, by its process id.
pub(super) type TakeOver = fn(&Task, &WatchdogWakeup, worker: u32) -> !;

/// How the worker tells the watchdog that something has changed.
pub(super) struct WatchdogWakeup(OwnedFd);

impl WatchdogWakeup {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: makes a descriptor, which is this process's own.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor to wait for.
    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(super) fn ring(&self) {
        // SAFETY: writes 8 bytes. That it is full means that it was rung.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const ONE).cast(), 8) };
    }

    pub(super) fn silence(&self) {
        let mut rung = 0u64;
        // SAFETY: reads 8 bytes.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut rung).cast(), 8) };
    }
}

static ONE: u64 = 1;

/// Makes the kernel mark `word` when this process ends, for whatever reason.
pub(super) fn mark_at_death(word: &'static AtomicU32) {
    Box::leak(Box::new(RobustList::new())).register(word);
    word.store(std::process::id(), Ordering::SeqCst);
}

/// A daemon ended so: is it one too many? Not if somebody killed it.
pub(super) fn give_up(task: &Task, status: libc::c_int) -> bool {
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    !killed && task.pool.journal().failures.fetch_add(1, Ordering::Relaxed) >= FAILURES
}
