//! What the kernel shows of one process and channel.

use std::io;

use usertrace_sys::uapi::{LttFileInfo, LttRingPositions};

use usertrace_ring::{Channel, Positions, RingMemory};

/// A consumer file.
pub trait ConsumerFile {
    /// Whose it is, and what is in it.
    ///
    /// # Errors
    /// The kernel's.
    fn info(&self) -> io::Result<LttFileInfo>;

    /// Reads the positions of its rings, and gives the file's flags, `LTT_FILE_*`. What is
    /// committed below the positions can be read afterwards.
    ///
    /// # Errors
    /// The kernel's.
    fn positions(&self, rings: &mut [LttRingPositions]) -> io::Result<u32>;

    /// Gives what is below `position` back to the writer.
    ///
    /// # Errors
    /// The kernel's: if `position` is not between what was given back and the head.
    fn consume(&self, ring: u32, position: u64) -> io::Result<()>;

    /// Copies bytes of the rings, which follow each other from offset 0; zeros behind their end.
    /// The process may write them at the same time.
    fn read(&self, offset: u64, buffer: &mut [u8]);

    /// The word at `offset` of the rings, a multiple of 8, as [`RingMemory::load`] says.
    fn load(&self, offset: u64) -> u64;

    /// The positions of one ring as they are now, as [`RingMemory::positions`] says. What was
    /// consumed counts as claimed: a writer that discards says nothing else before it goes there,
    /// and who else reads may not have consumed it.
    ///
    /// # Errors
    /// The kernel's.
    fn ring_positions(&self, ring: u32) -> io::Result<Positions>;
}

/// One ring of a consumer file.
#[derive(Debug)]
pub struct FileRing<'a, F> {
    file: &'a F,
    ring: u32,
    offset: u64,
}

impl<'a, F: ConsumerFile> FileRing<'a, F> {
    /// The ring `ring` of the channel that `file` is of.
    pub fn new(file: &'a F, channel: &Channel, ring: u32) -> Self {
        Self {
            file,
            ring,
            offset: u64::from(ring) * channel.geometry().ring_size(),
        }
    }
}

impl<F: ConsumerFile> RingMemory for FileRing<'_, F> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.file.read(self.offset.saturating_add(offset), buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        self.file.load(self.offset.saturating_add(offset))
    }

    fn positions(&mut self) -> Positions {
        // That a file which was read fails now, its next use tells. Until then nothing in it is
        // believed.
        self.file.ring_positions(self.ring).unwrap_or(Positions {
            head: u64::MAX,
            claimed: u64::MAX,
        })
    }
}
