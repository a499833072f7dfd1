//! Plain images of memory: the offset in the file is the physical address. QEMU's `pmemsave 0 SIZE`
//! writes such files. The memory file of a small virtual machine is one, too, as long as all memory
//! is below its devices.

use std::ops::Range;
use std::path::Path;

use crate::dump_file::{DumpFile, read_with_zeros};
use crate::{DumpError, PhysicalMemory, Presence};

/// A plain image of memory.
#[derive(Debug)]
pub struct RawDump {
    file: DumpFile,
}

impl RawDump {
    pub(super) fn open(path: &Path) -> Result<Self, DumpError> {
        // The first bytes may be a program's memory, so ignore magic numbers.
        let file = DumpFile::open_plain(path).map_err(|source| DumpError::Io {
            what: "the file",
            source,
        })?;
        Ok(Self { file })
    }

    /// The memory in the image. It may be a sparse file, with holes of any size.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.file.data(0..self.file.len())
    }
}

impl PhysicalMemory for RawDump {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        read_with_zeros(&self.file, address, buffer)
    }
}
