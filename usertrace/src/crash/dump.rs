//! A dump, whichever format it has.

use std::io;
use std::path::Path;

use super::dump_file::DumpFile;
use super::kdump::{self, KdumpDump};
use super::{ElfDump, PhysicalMemory, Presence, Vmcoreinfo};

/// A file that is no dump which can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// It cannot be read.
    #[error("cannot read {what}")]
    Io {
        /// Which part.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It has the compressed format of kdump, and cannot be read.
    #[error("this is a dump in the compressed format of kdump, but {0}")]
    Kdump(&'static str),
    /// It is none of the formats that can be read.
    #[error("this is neither an ELF file nor a dump in the compressed format of kdump")]
    Unknown,
    /// It is an ELF file for another kind of machine, or not a dump.
    #[error("this is an ELF file, but not a dump of a 64-bit little-endian machine")]
    NotADump,
    /// It says that it has more than can be.
    #[error("{0} segments are more than a dump has")]
    Segments(u32),
}

/// A dump, of which only what is asked for is read.
#[derive(Debug)]
pub enum Dump {
    /// An ELF file.
    Elf(ElfDump),
    /// In the compressed format of kdump.
    Kdump(Box<KdumpDump>),
}

impl Dump {
    /// Opens a dump, flattened or not.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn open(path: &Path) -> Result<Self, DumpError> {
        let io = |what| move |source| DumpError::Io { what, source };
        let file = DumpFile::open(path).map_err(io("the file"))?;
        let mut magic = [0; 8];
        let len = file.read_up_to(0, &mut magic).map_err(io("the file"))?;
        match &magic {
            kdump::MAGIC if len == magic.len() => {
                KdumpDump::open(file).map(|dump| Self::Kdump(Box::new(dump)))
            }
            _ => ElfDump::of(file).map(Self::Elf),
        }
    }

    /// What the dump's kernel says of itself.
    #[must_use]
    pub fn vmcoreinfo(&self) -> &Vmcoreinfo {
        match self {
            Self::Elf(dump) => dump.vmcoreinfo(),
            Self::Kdump(dump) => dump.vmcoreinfo(),
        }
    }

    /// Does the file end before it should?
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        match self {
            Self::Elf(dump) => dump.is_cut_short(),
            Self::Kdump(dump) => dump.is_cut_short(),
        }
    }
}

impl PhysicalMemory for Dump {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        match self {
            Self::Elf(dump) => dump.read(address, buffer),
            Self::Kdump(dump) => dump.read(address, buffer),
        }
    }
}
