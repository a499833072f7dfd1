//! Memory of the kernel's that is read.

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

// SAFETY: memory that is only read through atomics belongs to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// The first `len` bytes of a file that is not truncated while they are mapped.
    pub(super) fn new(file: &File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len)
            .ok()
            .and_then(NonZeroUsize::new)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, at an address that the kernel chooses, takes nothing away from
        // anybody. Access to it never raises SIGBUS: these files are not truncated.
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
        // SAFETY: mapped until `self` is dropped, aligned to pages, and only ever given to this.
        unsafe { SharedBytes::new(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is this mapping's own, and nothing borrows it any more.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
