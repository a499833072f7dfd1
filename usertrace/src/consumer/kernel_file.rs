//! The kernel's consumer files.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use usertrace_sys::uapi::{LttFileInfo, LttRingPositions};
use usertrace_sys::{Errno, files};

use super::ConsumerFile;
use crate::ring::Channel;

/// A consumer file of the kernel's, with its rings mapped.
#[derive(Debug)]
pub struct KernelFile {
    file: File,
    rings: Mapping,
}

impl KernelFile {
    /// Opens a file and maps its rings.
    ///
    /// # Errors
    /// When that cannot be done, or when it is of a channel that this program cannot read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let info = files::file_info(file.as_fd()).map_err(io_error)?;
        let channel = Channel::new(&info.channel)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let len = u64::from(channel.nr_rings()) * channel.geometry().ring_size();
        let rings = Mapping::new(&file, len)?;
        Ok(Self { file, rings })
    }
}

impl ConsumerFile for KernelFile {
    fn info(&self) -> io::Result<LttFileInfo> {
        files::file_info(self.file.as_fd()).map_err(io_error)
    }

    fn positions(&self, rings: &mut [LttRingPositions]) -> io::Result<u32> {
        let positions = files::positions(self.file.as_fd(), rings).map_err(io_error)?;
        // Pairs with the writer's releasing store of `head`, which the kernel loaded for us: what is below it is seen
        // by the loads of `read`.
        fence(Ordering::Acquire);
        Ok(positions.flags)
    }

    fn consume(&self, ring: u32, position: u64) -> io::Result<()> {
        // What was read must not be overwritten before it was: the loads of `read` stay before the kernel's store of
        // the position, which the writer loads before it begins a sub-buffer.
        fence(Ordering::SeqCst);
        files::consume(self.file.as_fd(), ring, position).map_err(io_error)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.rings.read(offset, buffer);
    }
}

fn io_error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.into_raw())
}

/// A read-only mapping of memory that another process writes.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory that is only read through atomics belongs to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: &File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len)
            .ok()
            .and_then(NonZeroUsize::new)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, at an address that the kernel chooses, takes nothing away from anybody. Access to
        // it never raises SIGBUS: these files are not truncated.
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

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len);
        let there = buffer.len().min(self.len - offset);
        let (there, behind) = buffer.split_at_mut(there);
        behind.fill(0);
        // Words where that is possible, which is everywhere for positions that are multiples of 8.
        let words = if offset % 8 == 0 { there.len() / 8 } else { 0 };
        let (of_words, of_bytes) = there.split_at_mut(words * 8);
        for (n, word) in of_words.chunks_exact_mut(8).enumerate() {
            // SAFETY: in the mapping, as `offset + there.len() <= len`, and aligned, as the mapping is to pages. All
            // access to it in this process is atomic. Relaxed: `positions` has the order.
            let value = unsafe {
                let word = self.start.as_ptr().add(offset + n * 8);
                AtomicU64::from_ptr(word.cast()).load(Ordering::Relaxed)
            };
            word.copy_from_slice(&value.to_ne_bytes());
        }
        for (n, byte) in of_bytes.iter_mut().enumerate() {
            // SAFETY: as above; bytes are always aligned.
            *byte = unsafe {
                let byte = self.start.as_ptr().add(offset + words * 8 + n);
                AtomicU8::from_ptr(byte).load(Ordering::Relaxed)
            };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is this mapping's own, and nothing borrows it any more.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_mapping_reads_what_is_there() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..8192u32).map(|n| (n * 7) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mapping = Mapping::new(&file, 8192).unwrap();
        for (offset, len) in [
            (0, 8192),
            (8, 16),
            (8, 13),
            (3, 20),
            (8190, 10),
            (9000, 4),
            (8192, 1),
        ] {
            let mut got = vec![0xee; len];
            mapping.read(offset as u64, &mut got);
            let mut want: Vec<u8> = bytes.iter().skip(offset).take(len).copied().collect();
            want.resize(len, 0);
            assert_eq!(got, want, "{offset} {len}");
        }
        assert!(Mapping::new(&file, 0).is_err());
    }

    #[test]
    fn other_files_are_refused() {
        assert!(KernelFile::open(Path::new("/dev/null")).is_err());
        assert!(KernelFile::open(Path::new("/nonexistent")).is_err());
    }
}
