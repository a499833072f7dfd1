//! `errno`, which what runs in a program unasked leaves as it found it.

/// Gives the calling thread's `errno` back what it was, when it is dropped.
#[must_use]
pub(crate) struct Kept(libc::c_int);

/// Keeps what it is now.
pub(crate) fn keep() -> Kept {
    // SAFETY: a thread's own number, always there.
    Kept(unsafe { *libc::__errno_location() })
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
