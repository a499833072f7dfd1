//! Images of memory without any header: a byte of the file is the byte of memory at the same
//! address, as QEMU's `pmemsave 0 SIZE` writes it, and as a virtual machine's memory lies in a file
//! if it has less of it than fits below its devices.

use std::ops::Range;
use std::path::Path;

use crate::dump_file::{DumpFile, read_with_zeros};
use crate::{DumpError, PhysicalMemory, Presence};

/// An image.
#[derive(Debug)]
pub struct RawDump {
    file: DumpFile,
}

impl RawDump {
    pub(super) fn open(path: &Path) -> Result<Self, DumpError> {
        // What it begins with may be a program's memory, and means nothing.
        let file = DumpFile::open_plain(path).map_err(|source| DumpError::Io {
            what: "the file",
            source,
        })?;
        Ok(Self { file })
    }

    /// What memory it has: an image may be a sparse file, with holes of any size.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.file.data(0..self.file.len())
    }
}

impl PhysicalMemory for RawDump {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        read_with_zeros(&self.file, address, buffer)
    }
}
