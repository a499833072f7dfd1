//! A dump in any of the supported formats.

use std::path::Path;

use crate::dump_file::DumpFile;
use crate::error::DumpError;
use crate::kdump::{self, KdumpDump};
use crate::reserved;
use crate::scan::find_roots;
use crate::{ElfDump, PhysicalMemory, Presence, RawDump, ReservedDump, RootSearch, Vmcoreinfo};

/// Magic numbers of saved virtual machines: QEMU's (`QEMU_VM_FILE_MAGIC` in `migration/savevm.h`,
/// version 7.2), and libvirt's (`QEMU_SAVE_MAGIC`, `QEMU_SAVE_PARTIAL` in
/// `src/qemu/qemu_saveimage.h`, version 9.0).
const MACHINES: [&[u8]; 2] = [b"QEVM", b"LibvirtQ"];

/// A dump, which is only read on demand.
#[derive(Debug)]
pub enum Dump {
    /// An ELF file.
    Elf(ElfDump),
    /// A file in the compressed format of kdump.
    Kdump(Box<KdumpDump>),
    /// A plain image of memory.
    Raw(RawDump),
    /// Reserved memory of an earlier boot.
    Reserved(Box<ReservedDump>),
}

impl Dump {
    /// Opens a dump, flattened or not.
    ///
    /// # Errors
    /// If the file cannot be read, or has no supported format.
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

    /// Opens a plain image of memory from address 0 on.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open_raw(path: &Path) -> Result<Self, DumpError> {
        RawDump::open(path).map(Self::Raw)
    }

    /// The vmcoreinfo of the dump's kernel, if the dump has it.
    #[must_use]
    pub fn vmcoreinfo(&self) -> Option<&Vmcoreinfo> {
        let info = match self {
            Self::Elf(dump) => dump.vmcoreinfo(),
            Self::Kdump(dump) => dump.vmcoreinfo(),
            Self::Raw(_) | Self::Reserved(_) => return None,
        };
        Some(info).filter(|info| **info != Vmcoreinfo::default())
    }

    /// The address of the root page, if the dump says it.
    #[must_use]
    pub fn root(&self) -> Option<u64> {
        match self {
            Self::Reserved(dump) => Some(dump.root()),
            _ => self.vmcoreinfo()?.root,
        }
    }

    /// Searches for the root page: in the kernel's image, or if that is not found, in all memory.
    #[must_use]
    pub fn find_roots(&self) -> RootSearch {
        match self {
            Self::Elf(dump) => find_roots(self, dump.ranges(), dump.is_x86_64()),
            Self::Kdump(dump) => find_roots(self, dump.ranges(), dump.is_x86_64()),
            // A plain image does not name its machine, so try x86-64.
            Self::Raw(dump) => find_roots(self, dump.ranges(), true),
            Self::Reserved(dump) => find_roots(self, std::iter::once(dump.range()), false),
        }
    }

    /// Whether the file ends too early.
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
