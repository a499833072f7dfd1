//! `rseq(2)`: registers an area for restartable sequences.

use std::sync::atomic::AtomicU32;

use syscalls::{Errno, Sysno, raw};

/// `RSEQ_FLAG_UNREGISTER`
const UNREGISTER: usize = 1;

/// Registers the calling thread's area, of `len` bytes.
///
/// `signature` stands in front of each abort handler. Async-signal-safe; leaves `errno` alone.
///
/// # Safety
/// The `len` bytes at `area` must be of atomics, and stay valid until [`unregister`] or the
/// thread's end. `rseq_cs` in it must always be NULL or the address of a descriptor.
///
/// # Errors
/// - `EBUSY`: this area is registered already.
/// - `EINVAL`: another area is registered, or the length or alignment is wrong.
/// - `ENOSYS`: the kernel has no restartable sequences.
pub(crate) unsafe fn register(
    area: *const AtomicU32,
    len: usize,
    signature: u32,
) -> Result<(), Errno> {
    // SAFETY: as this function's caller promises.
    unsafe { rseq(area, len, 0, signature) }
}

/// Unregisters the calling thread's area. The arguments must be those of [`register`].
///
/// The kernel stores the CPU number of an unregistered area there. Async-signal-safe; leaves
/// `errno` alone.
///
/// # Safety
/// As for [`register`], during the call.
///
/// # Errors
/// The area is not the one that is registered.
pub(crate) unsafe fn unregister(
    area: *const AtomicU32,
    len: usize,
    signature: u32,
) -> Result<(), Errno> {
    // SAFETY: as this function's caller promises.
    unsafe { rseq(area, len, UNREGISTER, signature) }
}

/// # Safety
/// As for [`register`].
unsafe fn rseq(
    area: *const AtomicU32,
    len: usize,
    flags: usize,
    signature: u32,
) -> Result<(), Errno> {
    // SAFETY: the kernel writes to the fields of the area, which are atomic, and reads `rseq_cs`,
    // as long as the area is registered. The area is valid that long, as the caller promises.
    let ret = unsafe {
        raw::syscall4(
            Sysno::rseq as usize,
            area as usize,
            len,
            flags,
            signature as usize,
        )
    };
    Errno::from_ret(ret).map(drop)
}
