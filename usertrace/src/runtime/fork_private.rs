//! Memory that `fork` wipes in the child, for state of one process that its children must not
//! inherit (A5).

use std::ptr::NonNull;

/// Maps a zeroed value in such memory, which is never unmapped; none if the kernel refuses.
///
/// # Safety
/// All zeros must be a valid `T` at any time: the child finds zeros whatever this process has
/// stored.
pub(crate) unsafe fn map<T>() -> Option<NonNull<T>> {
    let memory = map_kept::<T>()?;
    let (start, len) = (memory.as_ptr().cast(), size_of::<T>());
    // SAFETY: a new mapping, to which no other reference exists.
    unsafe {
        if libc::madvise(start, len, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(start, len);
            return None;
        }
    }
    Some(memory)
}

/// Maps a zeroed value that is never unmapped. A child of `fork` gets a copy.
pub(crate) fn map_kept<T>() -> Option<NonNull<T>> {
    // SAFETY: a new mapping, to which no other reference exists.
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
