//! Memory for packets, which becomes huge pages once there is enough to write.
//!
//! For a direct write (`file.rs`), the kernel must find, pin and describe each page of a packet. A
//! huge page is one such page, and needs one TLB entry. But one byte allocates a huge page
//! completely, so streams that never fill a packet keep small pages.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// Size of a huge page, with pages of 4 KiB.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// An anonymous mapping, aligned to [`HUGE_PAGE`] and initially zero.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
    is_huge: bool,
}

// SAFETY: the value owns its mapping exclusively, like a box.
unsafe impl Send for Pages {}
// SAFETY: a shared reference only allows reads.
unsafe impl Sync for Pages {}

impl Default for Pages {
    /// No memory.
    fn default() -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
            is_huge: false,
        }
    }
}

impl Pages {
    /// Maps at least `len` bytes. Without memory, it ends the process, like a vector.
    pub(super) fn new(len: usize) -> Self {
        let too_long = || -> ! { handle_alloc_error(Layout::new::<u8>()) };
        let Some(len) = len.checked_next_multiple_of(HUGE_PAGE) else {
            too_long()
        };
        // The kernel chooses an address, so map more at first and trim it.
        let Some(mapped) = len.checked_add(HUGE_PAGE) else {
            too_long()
        };
        // SAFETY: without `MAP_FIXED`, a new mapping does not affect existing memory.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let first = start.cast::<u8>();
        let before = first.addr().wrapping_neg() % HUGE_PAGE;
        let start = NonNull::new(first.wrapping_add(before));
        let Some(start) = start.filter(|_| first.cast() != libc::MAP_FAILED) else {
            handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()))
        };
        for (part, len) in [
            (first, before),
            (start.as_ptr().wrapping_add(len), HUGE_PAGE - before),
        ] {
            if len != 0 {
                // SAFETY: the part belongs to the new mapping, and nothing refers to it. If
                // `munmap` fails, it stays unused.
                unsafe { libc::munmap(part.cast(), len) };
            }
        }
        Self {
            start,
            len,
            is_huge: false,
        }
    }

    /// Makes the pages huge, if possible. Their contents may be lost.
    pub(super) fn make_huge(&mut self) {
        if self.is_huge || self.len == 0 {
            return;
        }
        self.is_huge = true;
        let start = self.start.as_ptr().cast();
        // `MADV_DONTNEED` drops the small pages, and `MADV_HUGEPAGE` keeps new small ones from
        // taking their place. SAFETY: `&mut self` has exclusive access, and the contents become
        // zeros, which are valid.
        unsafe {
            libc::madvise(start, self.len, libc::MADV_DONTNEED);
            libc::madvise(start, self.len, libc::MADV_HUGEPAGE);
        }
    }
}

impl Deref for Pages {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `new` mapped `len` readable and initialized bytes, which stay until `drop`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` has exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: `new` mapped it, and `&mut self` shows that no borrow is left.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_zero() {
        for len in [1, HUGE_PAGE, HUGE_PAGE + 1] {
            let mut pages = Pages::new(len);
            assert_eq!(pages.as_ptr().addr() % HUGE_PAGE, 0);
            assert_eq!(pages.len(), len.next_multiple_of(HUGE_PAGE));
            assert!(pages.iter().all(|&byte| byte == 0));
            pages.fill(7);
            pages.make_huge();
            pages.fill(8);
            // They are huge already, and keep their contents.
            pages.make_huge();
            assert!(pages.iter().all(|&byte| byte == 8));
        }
        assert!(Pages::default().is_empty());
    }
}
