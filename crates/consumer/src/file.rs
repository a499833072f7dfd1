//! The interface of a consumer file: the rings of one process and channel.

use std::io;

use usertrace_sys::uapi::{LttFileInfo, LttRingPositions};

use usertrace_ring::{Channel, Positions, RingMemory};

/// A consumer file: the rings of one process and channel, with their positions.
pub trait ConsumerFile {
    /// Describes the process and the channel.
    ///
    /// # Errors
    /// Those of the kernel.
    fn info(&self) -> io::Result<LttFileInfo>;

    /// Reads the positions of its rings, and returns the file's flags, `LTT_FILE_*`. Committed data
    /// below the positions can be read afterwards.
    ///
    /// # Errors
    /// Those of the kernel.
    fn positions(&self, rings: &mut [LttRingPositions]) -> io::Result<u32>;

    /// Consumes everything below `position`, so that the writer can reuse it.
    ///
    /// # Errors
    /// Those of the kernel, for example if `position` is not between the consumed position and the
    /// head.
    fn consume(&self, ring: u32, position: u64) -> io::Result<()>;

    /// Copies bytes of the rings, which are consecutive from offset 0; zeros beyond their end. The
    /// process may write them concurrently.
    fn read(&self, offset: u64, buffer: &mut [u8]);

    /// Loads the word at `offset` of the rings, a multiple of 8, like [`RingMemory::load`].
    fn load(&self, offset: u64) -> u64;

    /// The current positions of one ring, as for [`RingMemory::positions`]. Consumed bytes count as
    /// claimed: a discarding writer may reuse them without a further claim, and another reader may
    /// not have consumed them.
    ///
    /// # Errors
    /// Those of the kernel.
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
    /// The ring with number `ring` of `file`, which belongs to `channel`.
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
        // If a file fails that worked before, its next use reports that. These positions invalidate
        // everything that was read.
        self.file.ring_positions(self.ring).unwrap_or(Positions {
            head: u64::MAX,
            claimed: u64::MAX,
        })
    }
}
