//! `membarrier(2)`: makes all threads of this process see that a slot is closed (A9).
//!
//! (The libc crate has its commands for Android only.)

use syscalls::{Errno, Sysno, raw};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`
const BARRIER: usize = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`
const REGISTER_BARRIER: usize = 1 << 4;
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ`
const RESTART: usize = 1 << 7;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ`
const REGISTER_RESTART: usize = 1 << 8;

/// Registers this process for [`restart`] and [`barrier`], which fail before.
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Errors
/// The kernel has no `membarrier`, or a filter forbids it.
pub(crate) fn register() -> Result<(), Errno> {
    membarrier(REGISTER_RESTART)?;
    membarrier(REGISTER_BARRIER)
}

/// Restarts all restartable sequences that threads of this process are executing.
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Errors
/// The process is not registered, or a filter forbids the call.
pub(crate) fn restart() -> Result<(), Errno> {
    membarrier(RESTART)
}

/// Makes each running thread of this process execute a full memory barrier.
///
/// A thread that is not running executed one when it was scheduled out. Async-signal-safe; leaves
/// `errno` alone.
///
/// # Errors
/// As for [`restart`].
pub(crate) fn barrier() -> Result<(), Errno> {
    membarrier(BARRIER)
}

fn membarrier(command: usize) -> Result<(), Errno> {
    // SAFETY: the call accesses no memory.
    let ret = unsafe { raw::syscall3(Sysno::membarrier as usize, command, 0, 0) };
    Errno::from_ret(ret).map(drop)
}
