//! Memory that a child of `fork` finds wiped: what lies there is of one process, and not of its
//! children (A5).

use std::ptr::NonNull;

/// A value of zeros in such memory, which stays for ever; nothing if there is none to be had.
///
/// # Safety
/// Zeros must be a `T`, at any time: the child's are zeros whatever this process has stored.
pub(crate) unsafe fn map<T>() -> Option<NonNull<T>> {
    let memory = map_kept::<T>()?;
    let (start, len) = (memory.as_ptr().cast(), size_of::<T>());
    // SAFETY: a new mapping, which nobody knows otherwise.
    unsafe {
        if libc::madvise(start, len, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(start, len);
            return None;
        }
    }
    Some(memory)
}

/// Zeros that stay for ever, of which a child of `fork` has a copy.
pub(crate) fn map_kept<T>() -> Option<NonNull<T>> {
    // SAFETY: a new mapping, which nobody knows otherwise.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (memory != libc::MAP_FAILED).then(|| NonNull::new(memory.cast()))?
}
