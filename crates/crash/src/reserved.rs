//! Reserved memory with the traces of an earlier boot, as the current kernel provides it, or a copy
//! of it.
//!
//! Its first page has its physical address and size. Everything that its root page leads to is
//! inside.

use std::ops::Range;

use usertrace_sys::crash::{LTT_CRASH_RESERVED_MAGIC, LttCrashReserved};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::directory::is_checksum_valid;
use crate::dump_file::{DumpFile, read_with_zeros};
use crate::{DumpError, PhysicalMemory, Presence};

/// The magic number of the first page.
pub(super) const MAGIC: [u8; 8] = LTT_CRASH_RESERVED_MAGIC.to_le_bytes();

/// The reserved memory of an earlier boot.
#[derive(Debug)]
pub struct ReservedDump {
    file: DumpFile,
    header: LttCrashReserved,
    /// The physical addresses, checked for overflow.
    range: Range<u64>,
}

impl ReservedDump {
    pub(super) fn of(file: DumpFile) -> Result<Self, DumpError> {
        let header = file
            .read_vec(0, size_of::<LttCrashReserved>())
            .map_err(|source| DumpError::Io {
                what: "the first page",
                source,
            })?;
        let header = LttCrashReserved::read_from_bytes(&header)
            .map_err(|_| DumpError::Reserved("its first page is cut short"))?;
        let summed = &header.as_bytes()[..std::mem::offset_of!(LttCrashReserved, reserved)];
        if !is_checksum_valid(summed) {
            return Err(DumpError::Reserved("the sum of its first page is wrong"));
        }
        let end = header.start.checked_add(header.size);
        let end = end.ok_or(DumpError::Reserved("its place makes no sense"))?;
        let range = header.start..end;
        Ok(Self {
            file,
            header,
            range,
        })
    }

    /// The address of the root page.
    #[must_use]
    pub fn root(&self) -> u64 {
        // Saturation is harmless: an address outside the memory is missing.
        self.range
            .start
            .saturating_add(std::mem::offset_of!(LttCrashReserved, root) as u64)
    }

    /// The number of the boot that left it, which grows with each boot.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.header.boot
    }

    /// Its physical addresses.
    pub(super) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Whether the file is shorter than the memory was.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.file.len() < self.header.size
    }
}

impl PhysicalMemory for ReservedDump {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        // Nothing useful starts below the memory.
        if !self.range.contains(&address) {
            buffer.fill(0);
            return Presence::Missing;
        }
        read_with_zeros(&self.file, address - self.range.start, buffer)
    }
}
