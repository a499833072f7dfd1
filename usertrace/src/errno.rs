//! Preserves `errno` in code that runs without the program's knowledge.

/// Restores the calling thread's `errno` when it is dropped.
#[must_use]
pub(crate) struct ErrnoGuard(libc::c_int);

/// Saves `errno`.
pub(crate) fn keep() -> ErrnoGuard {
    // SAFETY: the pointer is to the calling thread's `errno`, which always exists.
    ErrnoGuard(unsafe { *libc::__errno_location() })
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        // SAFETY: as in `keep`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
