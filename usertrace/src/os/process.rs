//! Processes: the own id, and `fork` and `wait` without the C library.

use syscalls::{Sysno, raw};

/// The id of the calling process (`getpid`). Async-signal-safe; leaves `errno` alone.
#[inline]
pub(crate) fn id() -> u32 {
    // SAFETY: the call accesses no memory.
    unsafe { raw::syscall0(Sysno::getpid as usize) as u32 }
}

#[cfg(feature = "fallback")]
pub(crate) use self::children::{fork, wait};

#[cfg(feature = "fallback")]
mod children {
    use syscalls::{Errno, Sysno, raw};

    /// Forks, without the C library knowing: no handler of `pthread_atfork` runs.
    ///
    /// The kernel sends `signo` to the parent when the child ends; 0: no signal. The result is 0 in
    /// the child, and the child's id in the parent. Leaves `errno` alone.
    ///
    /// # Safety
    /// This process must have one thread: otherwise the child could find locks that no thread will
    /// ever release.
    ///
    /// # Errors
    /// There is no memory, or a limit of processes was reached.
    pub(crate) unsafe fn fork(signo: libc::c_int) -> Result<u32, Errno> {
        // SAFETY: without any flag, the child gets a copy of everything. No other thread holds a
        // lock that the child would wait for: there is none, as this function's caller promises.
        let ret = unsafe { raw::syscall5(Sysno::clone as usize, signo as usize, 0, 0, 0, 0) };
        Errno::from_ret(ret).map(|pid| pid as u32)
    }

    /// Waits for the end of a child, of [`fork`] with any signal or of the C library's `fork`, and
    /// returns its status (`wait4`).
    ///
    /// Async-signal-safe; leaves `errno` alone.
    ///
    /// # Errors
    /// `ECHILD`: there is no such child, or another thread waited for it.
    pub(crate) fn wait(pid: u32) -> Result<libc::c_int, Errno> {
        let mut status = 0;
        loop {
            // SAFETY: the kernel writes to `status` alone.
            let ret = unsafe {
                raw::syscall4(
                    Sysno::wait4 as usize,
                    pid as usize,
                    &raw mut status as usize,
                    libc::__WALL as usize,
                    0,
                )
            };
            match Errno::from_ret(ret) {
                Err(Errno::EINTR) => {}
                result => return result.map(|_| status),
            }
        }
    }
}
