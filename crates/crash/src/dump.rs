//! A dump, whichever format it has.

use std::path::Path;

use crate::dump_file::DumpFile;
use crate::error::DumpError;
use crate::kdump::{self, KdumpDump};
use crate::reserved;
use crate::scan::find_roots;
use crate::{ElfDump, PhysicalMemory, Presence, RawDump, ReservedDump, RootSearch, Vmcoreinfo};

/// What files of QEMU's that have a machine begin with (`QEMU_VM_FILE_MAGIC` in
/// `migration/savevm.h`, version 7.2), and libvirt's (`QEMU_SAVE_MAGIC`, `QEMU_SAVE_PARTIAL` in
/// `src/qemu/qemu_saveimage.h`, version 9.0).
const MACHINES: [&[u8]; 2] = [b"QEVM", b"LibvirtQ"];

/// A dump, of which only what is asked for is read.
#[derive(Debug)]
pub enum Dump {
    /// An ELF file.
    Elf(ElfDump),
    /// In the compressed format of kdump.
    Kdump(Box<KdumpDump>),
    /// Memory as it was, and nothing else.
    Raw(RawDump),
    /// Of a boot before this one.
    Reserved(Box<ReservedDump>),
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
            &reserved::MAGIC if len == magic.len() => {
                ReservedDump::of(file).map(|dump| Self::Reserved(Box::new(dump)))
            }
            magic if MACHINES.iter().any(|machine| magic.starts_with(machine)) => {
                Err(DumpError::Machine)
            }
            _ => ElfDump::of(file).map(Self::Elf),
        }
    }

    /// Opens an image of memory, from address 0 on, that has no header.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open_raw(path: &Path) -> Result<Self, DumpError> {
        RawDump::open(path).map(Self::Raw)
    }

    /// What the dump's kernel says of itself. None: it does not say anything.
    #[must_use]
    pub fn vmcoreinfo(&self) -> Option<&Vmcoreinfo> {
        let said = match self {
            Self::Elf(dump) => dump.vmcoreinfo(),
            Self::Kdump(dump) => dump.vmcoreinfo(),
            Self::Raw(_) | Self::Reserved(_) => return None,
        };
        Some(said).filter(|said| **said != Vmcoreinfo::default())
    }

    /// Where the root page is, as the dump itself says. None: it does not say it.
    #[must_use]
    pub fn root(&self) -> Option<u64> {
        match self {
            Self::Reserved(dump) => Some(dump.root()),
            _ => self.vmcoreinfo()?.root,
        }
    }

    /// Searches for the root page: in the kernel's image, if that can be found, or else in all
    /// memory.
    #[must_use]
    pub fn find_roots(&self) -> RootSearch {
        match self {
            Self::Elf(dump) => find_roots(self, dump.ranges(), dump.is_x86_64()),
            Self::Kdump(dump) => find_roots(self, dump.ranges(), dump.is_x86_64()),
            // It does not say of what machine it is.
            Self::Raw(dump) => find_roots(self, dump.ranges(), true),
            Self::Reserved(dump) => find_roots(self, std::iter::once(dump.range()), false),
        }
    }

    /// Does the file end before it should?
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        match self {
            Self::Elf(dump) => dump.is_cut_short(),
            Self::Kdump(dump) => dump.is_cut_short(),
            Self::Raw(_) => false,
            Self::Reserved(dump) => dump.is_cut_short(),
        }
    }
}

impl PhysicalMemory for Dump {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        match self {
            Self::Elf(dump) => dump.read(address, buffer),
            Self::Kdump(dump) => dump.read(address, buffer),
            Self::Raw(dump) => dump.read(address, buffer),
            Self::Reserved(dump) => dump.read(address, buffer),
        }
    }
}
