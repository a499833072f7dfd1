//! The kernel's consumer files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use usertrace_ring::{Channel, Positions};
use usertrace_sys::uapi::{LttFileInfo, LttRingPositions};
use usertrace_sys::{Errno, files};

use super::ConsumerFile;
use super::mapping::Mapping;

/// A consumer file of the kernel, with its rings mapped.
#[derive(Debug)]
pub struct KernelFile {
    file: File,
    channel: Channel,
    rings: Mapping,
}

impl KernelFile {
    /// Opens a file for reading and maps its rings. [`consume`](ConsumerFile::consume) fails with
    /// `EBADF`.
    ///
    /// # Errors
    /// If the file cannot be opened or mapped, or this program does not support its channel.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file for consuming, which requires write permission, and maps its rings.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_to_consume(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OpenOptions::new().read(true).write(true))
    }

    fn open_with(path: &Path, options: &OpenOptions) -> io::Result<Self> {
        let file = options.open(path)?;
        let info = files::file_info(file.as_fd()).map_err(io_error)?;
        let channel = Channel::new(&info.channel)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let len = u64::from(channel.nr_rings()) * channel.geometry().ring_size();
        let rings = Mapping::new(&file, len)?;
        Ok(Self {
            file,
            channel,
            rings,
        })
    }
}

impl ConsumerFile for KernelFile {
    fn info(&self) -> io::Result<LttFileInfo> {
        files::file_info(self.file.as_fd()).map_err(io_error)
    }

    fn positions(&self, rings: &mut [LttRingPositions]) -> io::Result<u32> {
        let positions = files::positions(self.file.as_fd(), rings).map_err(io_error)?;
        // Pairs with the writer's release store of `head`, which the kernel loaded for us: the
        // loads of `read` see the records below it.
        fence(Ordering::Acquire);
        Ok(positions.flags)
    }

    fn consume(&self, ring: u32, position: u64) -> io::Result<()> {
        // Keeps the loads of `read` before the kernel's store of the position. The writer loads
        // that position before it reuses a sub-buffer, so it cannot overwrite data before it was
        // read.
        fence(Ordering::SeqCst);
        files::consume(self.file.as_fd(), ring, position).map_err(io_error)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.rings.bytes().read(offset, buffer);
    }

    fn load(&self, offset: u64) -> u64 {
        self.rings.bytes().load(offset)
    }

    fn ring_positions(&self, ring: u32) -> io::Result<Positions> {
        // Keeps the earlier copy before the kernel's load of the positions.
        fence(Ordering::SeqCst);
        let room = ring.min(self.channel.nr_rings()) as usize + 1;
        let mut rings = vec![LttRingPositions::default(); room];
        self.positions(&mut rings)?;
        let ring = rings
            .get(ring as usize)
            .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Positions {
            head: ring.head,
            claimed: ring.claimed.max(ring.consumed),
        })
    }
}

fn io_error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.into_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused() {
        assert!(KernelFile::open(Path::new("/dev/null")).is_err());
        assert!(KernelFile::open(Path::new("/nonexistent")).is_err());
        assert!(KernelFile::open_to_consume(Path::new("/dev/null")).is_err());
    }
}
