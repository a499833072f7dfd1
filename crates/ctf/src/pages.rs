//! Memory in which packets are put together: huge pages, once there is enough to write.
//!
//! A disk takes a packet from where it lies (`file.rs`), and the kernel has to find, hold and
//! describe each of its pages for that. Of a huge page it does so once, and the processor needs one
//! entry of its TLB for it. But a huge page is there as a whole as soon as one byte of it is, so
//! those who never fill a packet keep the small ones, of which they have what they use.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// Bytes of a huge page, where a page has 4 KiB.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Memory of its own, from a multiple of [`HUGE_PAGE`] on: zeros, until something is written there.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
    is_huge: bool,
}

// SAFETY: it is this one's alone, as a box's is.
unsafe impl Send for Pages {}
// SAFETY: who has a shared reference can only read it.
unsafe impl Sync for Pages {}

impl Default for Pages {
    /// None.
    fn default() -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
            is_huge: false,
        }
    }
}

impl Pages {
    /// So many bytes at least. Ends the process if there is no memory, as a vector does.
    pub(super) fn new(len: usize) -> Self {
        let too_long = || -> ! { handle_alloc_error(Layout::new::<u8>()) };
        let Some(len) = len.checked_next_multiple_of(HUGE_PAGE) else {
            too_long()
        };
        // As the kernel may have it begin anywhere, there is more of it at first.
        let Some(mapped) = len.checked_add(HUGE_PAGE) else {
            too_long()
        };
        // SAFETY: a new mapping, at an address that the kernel chooses, takes nothing away from
        // anybody.
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
                // SAFETY: it is of what was mapped just now, and nobody has it. If it stays, it is
                // never used.
                unsafe { libc::munmap(part.cast(), len) };
            }
        }
        Self {
            start,
            len,
            is_huge: false,
        }
    }

    /// Makes them huge ones, if that can be had; what was in them may be gone.
    pub(super) fn make_huge(&mut self) {
        if self.is_huge || self.len == 0 {
            return;
        }
        self.is_huge = true;
        let start = self.start.as_ptr().cast();
        // Without the first, the small ones would stay; without the second, small ones come again.
        // SAFETY: what is there becomes zeros, and this is the only one who has it.
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
        // SAFETY: it has as many bytes there, readable and initialized by the kernel, until it is
        // dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: it was mapped by this one, and nothing borrows it any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_begin_where_huge_pages_do_and_are_zeros() {
        for len in [1, HUGE_PAGE, HUGE_PAGE + 1] {
            let mut pages = Pages::new(len);
            assert_eq!(pages.as_ptr().addr() % HUGE_PAGE, 0);
            assert_eq!(pages.len(), len.next_multiple_of(HUGE_PAGE));
            assert!(pages.iter().all(|&byte| byte == 0));
            pages.fill(7);
            pages.make_huge();
            pages.fill(8);
            // They are so already, and keep what they have.
            pages.make_huge();
            assert!(pages.iter().all(|&byte| byte == 8));
        }
        assert!(Pages::default().is_empty());
    }
}
