//! The system calls with any arguments, including invalid ones, which `usertrace_sys` does not
//! allow.

use std::ptr;

use syscalls::{Errno, Sysno, raw};
use usertrace_sys::Calls;
use usertrace_sys::uapi::PR_LTT_GET_ABI;

/// An address of the kernel.
pub const KERNEL_ADDRESS: usize = 0xffff_8880_0000_0000;

/// Any system call.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The call must not write to any Rust object, except one that may be overwritten.
pub unsafe fn call<const N: usize>(number: Sysno, arguments: [usize; N]) -> Result<usize, Errno> {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the caller promises that the call writes to no Rust object that must not change.
    Errno::from_ret(unsafe { raw::syscall6(number as usize, a, b, c, d, e, f) })
}

/// `prctl(PR_LTT_GET_ABI, …)`
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The kernel may write to where `abi` points: no Rust object may be there, except one that may be
/// overwritten.
pub unsafe fn get_abi(abi: usize, size: usize, arg4: usize, arg5: usize) -> Result<usize, Errno> {
    // SAFETY: the caller promises that the call writes to no Rust object that must not change.
    Errno::from_ret(unsafe {
        raw::syscall5(
            Sysno::prctl as usize,
            PR_LTT_GET_ABI as usize,
            abi,
            size,
            arg4,
            arg5,
        )
    })
}

/// `alloc_tracebuf`
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`get_abi`]'s, of `args`.
pub unsafe fn alloc_tracebuf(
    calls: &Calls,
    args: usize,
    size: usize,
    flags: usize,
) -> Result<usize, Errno> {
    let nr = calls.abi().nr_alloc_tracebuf as usize;
    // SAFETY: the caller promises that the call writes to no Rust object that must not change.
    Errno::from_ret(unsafe { raw::syscall3(nr, args, size, flags) })
}

/// `ltt_update`
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`get_abi`]'s, of all three.
pub unsafe fn update(
    calls: &Calls,
    buffer: usize,
    active: usize,
    filter: usize,
) -> Result<usize, Errno> {
    let nr = calls.abi().nr_ltt_update as usize;
    // SAFETY: the caller promises that the call writes to no Rust object that must not change.
    Errno::from_ret(unsafe { raw::syscall3(nr, buffer, active, filter) })
}

/// `ltt_switch`
///
/// # Errors
/// The kernel's.
pub fn switch(calls: &Calls, buffer: usize) -> Result<usize, Errno> {
    let nr = calls.abi().nr_ltt_switch as usize;
    // SAFETY: it only compares the address.
    Errno::from_ret(unsafe { raw::syscall1(nr, buffer) })
}

/// Pages of memory, for invalid pointers.
#[derive(Debug)]
pub struct Pages {
    start: usize,
    len: usize,
}

impl Pages {
    /// `count` pages with these rights.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    pub fn new(count: usize, protection: libc::c_int) -> Self {
        let len = count * 4096;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self {
            start: at as usize,
            len,
        }
    }

    /// Their address.
    #[must_use]
    pub fn address(&self) -> usize {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own, and nothing refers to it but by address.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.len) };
    }
}
