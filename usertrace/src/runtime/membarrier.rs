//! `membarrier(2)`: makes all threads of this process see that a slot is closed (A9).
//!
//! The libc crate has its commands for Android only.

use syscalls::{Errno, Sysno, raw};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`
const BARRIER: usize = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`
const REGISTER_BARRIER: usize = 1 << 4;
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ`
const RESTART: usize = 1 << 7;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ`
const REGISTER_RESTART: usize = 1 << 8;

/// Registers this process; required before the other two commands.
pub(crate) fn register() -> Result<(), Errno> {
    membarrier(REGISTER_RESTART)?;
    membarrier(REGISTER_BARRIER)
}

/// Restarts the rseq sequences that threads of this process are in.
pub(crate) fn restart() -> Result<(), Errno> {
    membarrier(RESTART)
}

/// Executes a full barrier in all running threads of this process.
pub(crate) fn barrier() -> Result<(), Errno> {
    membarrier(BARRIER)
}

fn membarrier(command: usize) -> Result<(), Errno> {
    // SAFETY: the call takes no pointers.
    let ret = unsafe { raw::syscall3(Sysno::membarrier as usize, command, 0, 0) };
    Errno::from_ret(ret).map(drop)
}
