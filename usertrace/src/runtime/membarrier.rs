//! `membarrier(2)`: makes sure that all threads of this process have seen that a slot is closed
//! (A9).
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

/// Must have been called before the other two.
pub(crate) fn register() -> Result<(), Errno> {
    membarrier(REGISTER_RESTART)?;
    membarrier(REGISTER_BARRIER)
}

/// Restarts all sequences that this process's threads are in.
pub(crate) fn restart() -> Result<(), Errno> {
    membarrier(RESTART)
}

/// A full barrier in all of this process's threads that run.
pub(crate) fn barrier() -> Result<(), Errno> {
    membarrier(BARRIER)
}

fn membarrier(command: usize) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    let ret = unsafe { raw::syscall3(Sysno::membarrier as usize, command, 0, 0) };
    Errno::from_ret(ret).map(drop)
}
