//! Common parts of the daemons, the watchdog and the worker.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use usertrace_ctf::recording::Confirmation;

use super::clock::TraceClock;
use super::destination::Output;
use super::pool::Pool;
use crate::os::futex::RobustList;

/// Failures of daemons in a row, after which they give up.
const FAILURES: u32 = 16;

/// Parameters of the daemons, from their start on.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Task {
    pub(super) pool: Pool,
    pub(super) output: Output,
    pub(super) clock: TraceClock,
}

/// The files that both daemons have open.
pub(super) struct DaemonFiles {
    pub(super) watchdog_wakeup: WatchdogWakeup,
    /// Says how far the worker has written everything, if somebody wants to know.
    pub(super) confirmation: Option<Confirmation>,
}

/// Runs a watchdog that replaces that of a worker. `worker`: the worker's process id.
pub(super) type TakeOver = fn(&Task, &DaemonFiles, worker: u32) -> !;

/// Wakes the watchdog: an eventfd on which it polls.
pub(super) struct WatchdogWakeup(OwnedFd);

impl WatchdogWakeup {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which no other code knows of.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor to poll.
    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Wakes the watchdog.
    pub(super) fn notify(&self) {
        // SAFETY: the kernel reads the 8 bytes of `ONE`. It fails only if a notification is
        // pending.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const ONE).cast(), 8) };
    }

    /// Clears the notification, before the watchdog looks what happened.
    pub(super) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: the kernel stores 8 bytes in `count`.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

static ONE: u64 = 1;

/// Makes the kernel mark `word` when this process ends, for whatever reason.
pub(super) fn mark_at_death(word: &'static AtomicU32) {
    Box::leak(Box::new(RobustList::new())).register(word);
    word.store(std::process::id(), Ordering::SeqCst);
}

/// Counts a failure of a daemon that ended with `status`, and returns whether that is one too many.
/// A daemon that was killed by SIGKILL did not fail.
pub(super) fn reaches_failure_limit(task: &Task, status: libc::c_int) -> bool {
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    !killed && task.pool.journal().failures.fetch_add(1, Ordering::Relaxed) >= FAILURES
}
