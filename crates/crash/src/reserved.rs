//! What a boot has left in memory that was reserved for traces, as the next boot's kernel gives it,
//! or a copy of that.
//!
//! It begins with a page that says where it was and how long it is. All that its root page leads to
//! is in it.

use std::ops::Range;

use usertrace_sys::crash::{LTT_CRASH_RESERVED_MAGIC, LttCrashReserved};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::directory::adds_up;
use crate::dump_file::{DumpFile, read_with_zeros};
use crate::{DumpError, PhysicalMemory, Presence};

/// What it begins with.
pub(super) const MAGIC: [u8; 8] = LTT_CRASH_RESERVED_MAGIC.to_le_bytes();

/// A part of the memory.
#[derive(Debug)]
pub struct ReservedDump {
    file: DumpFile,
    header: LttCrashReserved,
    /// Without overflow.
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
        if !adds_up(summed) {
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

    /// Where the root page is.
    #[must_use]
    pub fn root(&self) -> u64 {
        // It lies within as far as that has anything: else it is missing.
        self.range
            .start
            .saturating_add(std::mem::offset_of!(LttCrashReserved, root) as u64)
    }

    /// Which boot left it: the number grows with each.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.header.boot
    }

    /// Where it was.
    pub(super) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Does the file have less than there was?
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.file.len() < self.header.size
    }
}

impl PhysicalMemory for ReservedDump {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        // Nothing that is of use begins before it.
        if !self.range.contains(&address) {
            buffer.fill(0);
            return Presence::Missing;
        }
        read_with_zeros(&self.file, address - self.range.start, buffer)
    }
}
