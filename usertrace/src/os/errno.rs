//! Preserves the program's `errno`.

/// Restores the calling thread's `errno` when it is dropped.
#[must_use]
pub(crate) struct ErrnoGuard(libc::c_int);

/// Saves the calling thread's `errno`, for code that runs in a program unasked.
pub(crate) fn keep() -> ErrnoGuard {
    // SAFETY: the C library's `errno` of the calling thread is always valid.
    ErrnoGuard(unsafe { *libc::__errno_location() })
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        // SAFETY: as in `keep`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
