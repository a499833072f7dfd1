//! Mappings: populates their pages, and changes what they contain and permit.

use syscalls::{Errno, Sysno, raw};

const PAGE: usize = 4096;

/// Populates the pages of `len` bytes for reading, and for writing where the page exists already.
///
/// In shared memory, this allocates pages that do not exist. Nothing happens if the kernel cannot
/// do that (before Linux 5.14), or has no memory. Async-signal-safe; leaves `errno` alone.
pub(crate) fn populate_read(start: *mut u8, len: usize) {
    populate(start, len, libc::MADV_POPULATE_READ);
}

/// Populates the pages of `len` bytes for writing.
///
/// Nothing happens if the kernel cannot do that (before Linux 5.14), or has no memory.
/// Async-signal-safe; leaves `errno` alone.
pub(crate) fn populate_write(start: *mut u8, len: usize) {
    populate(start, len, libc::MADV_POPULATE_WRITE);
}

fn populate(start: *mut u8, len: usize, advice: libc::c_int) {
    let end = (start.addr() + len).next_multiple_of(PAGE);
    let start = start.addr() / PAGE * PAGE;
    // SAFETY: these advices change no contents, and no access rights. Of addresses that are not
    // mapped, the kernel reports an error.
    unsafe {
        raw::syscall3(Sysno::madvise as usize, start, end - start, advice as usize);
    }
}

/// Whether the word at an address can be read (`rt_sigprocmask`). Changes nothing.
///
/// False also where a filter forbids the call. Async-signal-safe; leaves `errno` alone.
pub(crate) fn is_readable(address: usize) -> bool {
    /// No way to change the signal mask. The kernel reads the set before it checks that.
    const NOTHING: usize = usize::MAX >> 1;
    // SAFETY: the kernel reads 8 bytes, or reports that it cannot. It then refuses the call.
    let ret = unsafe { raw::syscall4(Sysno::rt_sigprocmask as usize, NOTHING, address, 0, 8) };
    Errno::from_ret(ret) == Err(Errno::EINVAL)
}

/// Changes the access rights of `len` bytes, which begin with a page (`mprotect`).
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Safety
/// The range must belong to the caller, and no code may access it in a way that `protection`
/// (`PROT_*`) forbids.
///
/// # Errors
/// The range is not mapped, or there is no memory to split the mapping.
#[cfg(feature = "fallback")]
pub(crate) unsafe fn protect(
    start: *mut u8,
    len: usize,
    protection: libc::c_int,
) -> Result<(), Errno> {
    // SAFETY: no code accesses the range in a way that is forbidden from now on, as this function's
    // caller promises.
    let ret = unsafe {
        raw::syscall3(
            Sysno::mprotect as usize,
            start as usize,
            len,
            protection as usize,
        )
    };
    Errno::from_ret(ret).map(drop)
}

/// Maps `len` bytes of private zeros, at an address that the kernel chooses.
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Errors
/// There is no memory or address space.
pub(crate) fn map_zeros(len: usize) -> Result<*mut u8, Errno> {
    // SAFETY: a new mapping, which replaces no other one.
    unsafe { map(std::ptr::null_mut(), len, 0) }
}

/// Replaces `len` bytes of address space, which begin with a page, by private zeros.
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Safety
/// The range must belong to the caller, and no code may rely on what it contains.
///
/// # Errors
/// There is no memory for another mapping.
#[cfg(feature = "fallback")]
pub(crate) unsafe fn replace_by_zeros(start: *mut u8, len: usize) -> Result<(), Errno> {
    let flags = libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: no code relies on what the range contains, as this function's caller promises.
    unsafe { map(start, len, flags) }.map(drop)
}

/// # Safety
/// With `MAP_FIXED` in `flags`, no code may rely on what the range contains.
unsafe fn map(start: *mut u8, len: usize, flags: libc::c_int) -> Result<*mut u8, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: the kernel replaces no other mapping, or one that no code relies on, as this
    // function's caller promises.
    let ret = unsafe {
        raw::syscall6(
            Sysno::mmap as usize,
            start as usize,
            len,
            protection as usize,
            flags as usize,
            usize::MAX,
            0,
        )
    };
    Errno::from_ret(ret).map(std::ptr::with_exposed_provenance_mut)
}

/// Unmaps `len` bytes, which begin with a page (`munmap`).
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Safety
/// The range must be a mapping of the caller's, and no code may access it any more.
pub(crate) unsafe fn unmap(start: *mut u8, len: usize) {
    // SAFETY: no code accesses the range any more, as this function's caller promises.
    unsafe { raw::syscall2(Sysno::munmap as usize, start as usize, len) };
}

/// Chooses whether a child of the next `fork` finds `len` bytes wiped (`MADV_WIPEONFORK`) or as
/// they are (`MADV_KEEPONFORK`).
///
/// Async-signal-safe; leaves `errno` alone.
///
/// # Safety
/// The range must be whole pages of a private anonymous mapping, and `wipe` may be true only if
/// zeros are valid for everything in it.
///
/// # Errors
/// The kernel does not know the advice (before Linux 4.14), or a filter forbids the call.
pub(crate) unsafe fn wipe_on_fork(start: *mut u8, len: usize, wipe: bool) -> Result<(), Errno> {
    let advice = if wipe {
        libc::MADV_WIPEONFORK
    } else {
        libc::MADV_KEEPONFORK
    };
    // SAFETY: what the child finds is valid, as this function's caller promises. Nothing changes
    // in this process.
    let ret = unsafe {
        raw::syscall3(
            Sysno::madvise as usize,
            start as usize,
            len,
            advice as usize,
        )
    };
    Errno::from_ret(ret).map(drop)
}
