//! Threads: ids, names, and CPUs.

use syscalls::{Errno, Sysno, raw};

/// Bytes of a thread's name, with the NUL (`TASK_COMM_LEN`).
pub(crate) const NAME_LEN: usize = 16;

/// The id of the calling thread (`gettid`). Async-signal-safe; leaves `errno` alone.
#[inline]
pub(crate) fn id() -> u32 {
    // SAFETY: the call accesses no memory.
    unsafe { raw::syscall0(Sysno::gettid as usize) as u32 }
}

/// Whether a process may have a thread of this id: false only if the kernel says that it has none
/// (`tgkill` without a signal).
///
/// Async-signal-safe; leaves `errno` alone.
#[inline]
pub(crate) fn may_exist(process: u32, thread: u32) -> bool {
    // SAFETY: signal 0 is not sent, and the call accesses no memory.
    let ret =
        unsafe { raw::syscall3(Sysno::tgkill as usize, process as usize, thread as usize, 0) };
    Errno::from_ret(ret) != Err(Errno::ESRCH)
}

/// The CPU that the calling thread runs on, or 0 if a filter forbids the call (`getcpu`).
///
/// The kernel may move the thread before the caller sees the result. Async-signal-safe; leaves
/// `errno` alone.
#[inline]
pub(crate) fn cpu() -> u32 {
    let mut cpu = 0u32;
    // SAFETY: the kernel stores a number in `cpu` alone.
    unsafe { raw::syscall3(Sysno::getcpu as usize, (&raw mut cpu).addr(), 0, 0) };
    cpu
}

/// The name of the calling thread, padded with zeros (`PR_GET_NAME`).
///
/// Async-signal-safe; leaves `errno` alone.
pub(crate) fn name() -> [u8; NAME_LEN] {
    let mut name = [0u8; NAME_LEN];
    // SAFETY: the kernel stores `NAME_LEN` bytes in `name`.
    unsafe {
        raw::syscall2(
            Sysno::prctl as usize,
            libc::PR_GET_NAME as usize,
            name.as_mut_ptr() as usize,
        );
    }
    name
}
