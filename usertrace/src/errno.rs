//! `errno`, which what runs in a program unasked leaves as it found it.

/// Gives the calling thread's `errno` back what it was, when it is dropped.
#[must_use]
pub(crate) struct ErrnoGuard(libc::c_int);

/// Keeps what it is now.
pub(crate) fn keep() -> ErrnoGuard {
    // SAFETY: a thread's own number, always there.
    ErrnoGuard(unsafe { *libc::__errno_location() })
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
