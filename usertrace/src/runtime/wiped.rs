//! Memory that a child of `fork` finds wiped: what lies there is of one process, and not of its children (A5).

use std::ptr::NonNull;

/// A value of zeros in such memory, which stays for ever; nothing if there is none to be had.
///
/// # Safety
/// Zeros must be a `T`, at any time: the child's are zeros whatever this process has stored.
pub(crate) unsafe fn map<T>() -> Option<NonNull<T>> {
    let len = size_of::<T>();
    // SAFETY: a new mapping, which nobody knows otherwise.
    unsafe {
        let memory = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if memory == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(memory, len, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(memory, len);
            return None;
        }
        NonNull::new(memory.cast())
    }
}
