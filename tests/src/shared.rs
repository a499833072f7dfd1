//! Numbers in memory that several processes share.

use std::ptr;
use std::sync::atomic::AtomicU64;

const PAGE: usize = 4096;
const WORDS: usize = PAGE / size_of::<AtomicU64>();

/// A number that this process shares with those that it forks.
#[derive(Debug)]
pub struct Shared(ptr::NonNull<AtomicU64>);

impl Shared {
    /// A number that is 0.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "memory is not what a default is"
    )]
    pub fn new() -> Self {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(ptr::NonNull::new(at.cast()).expect("not at 0"))
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> &AtomicU64 {
        &self.words()[0]
    }

    /// All numbers of its page, this one first.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: a page, mapped for as long as this lives, and used as atomics only.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), WORDS) }
    }
}

// SAFETY: the mapping belongs to no thread, and all accesses are atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE) };
    }
}
