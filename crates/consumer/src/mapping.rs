//! Read-only mappings of memory that the kernel or another process writes.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use usertrace_ring::SharedBytes;

/// A read-only mapping of memory that another process writes.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only read, through atomics, so any thread may access it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file that nobody truncates while it is mapped.
    pub(super) fn new(file: &File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len)
            .ok()
            .and_then(NonZeroUsize::new)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses an unused address, so no existing memory is affected. Accesses
        // raise no SIGBUS: nobody truncates these files.
        let start = unsafe {
            mmap(
                None,
                len,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
                file,
                0,
            )
        }?;
        Ok(Self {
            start: start.cast(),
            len: len.get(),
        })
    }

    pub(super) fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: `new` mapped `len` bytes, aligned to pages, and `drop` unmaps them after this
        // borrow. Only [`SharedBytes`] accesses them.
        unsafe { SharedBytes::new(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` created this mapping, and `&mut self` proves that nothing borrows it.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
