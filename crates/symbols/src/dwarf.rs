//! Functions, files and lines in DWARF.

use std::io;
use std::rc::Rc;

use addr2line::{Context, LookupResult};
use gimli::{AbbreviationsCacheStrategy, Reader as _, SectionId};
use usertrace_sys::printable;

use crate::demangle::demangle;
use crate::elf::ElfFile;
use crate::frame::Frame;
use crate::meter::{Meter, MeteredReader};
use crate::section;

/// Maximum size of all sections of a file that are read, and of those of the file that it shares
/// information with.
const MAX_LEN: u64 = 1 << 30;
/// Maximum number of reads to index a file, and for each byte that it has.
const INDEX_READS: u64 = 32 << 20;
const INDEX_READS_PER_BYTE: u64 = 4;
/// Maximum number of reads in a lookup: about a second.
const LOOKUP_READS: u64 = 64 << 20;
/// Maximum number of reads in all lookups: each part is read a few times.
const TOTAL_READS: u64 = 256 << 20;
const TOTAL_READS_PER_BYTE: u64 = 16;
const TOTAL_READS_PER_LOOKUP: u64 = 4096;
/// Estimate of the memory in bytes that is kept for each read.
const MEMORY_PER_READ: u64 = 8;
/// Maximum length of the path of a source file in bytes. Longer ones are left out.
const MAX_PATH: usize = 4096;
/// Maximum number of inlined functions at one address.
const MAX_FRAMES: usize = 256;

/// The debug information of a file.
pub(crate) struct Dwarf {
    context: Context<MeteredReader>,
    meter: Rc<Meter>,
    bytes: u64,
    lookups: u64,
}

impl std::fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dwarf")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// The debug information is damaged, or it takes too long to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

impl Dwarf {
    /// Reads the debug information of a file, and of the one that it shares information with.
    ///
    /// # Errors
    /// Those of reading, and if the information is damaged, too large, or costs too much.
    pub(crate) fn load(elf: &ElfFile, alternate: Option<&ElfFile>) -> io::Result<Self> {
        let meter = Rc::new(Meter::default());
        let mut left = MAX_LEN;
        let mut load = |elf: &ElfFile| {
            gimli::Dwarf::load(|id| {
                let section = is_needed(id).then(|| elf.section(id.name().as_bytes()));
                let bytes = match section.flatten() {
                    Some(section) => section::contents(elf, section, &mut left)?,
                    None => Vec::new(),
                };
                Ok::<_, io::Error>(MeteredReader::new(bytes.into(), &meter, weight(id)))
            })
        };
        let mut dwarf = load(elf)?;
        if let Some(alternate) = alternate {
            dwarf.set_sup(load(alternate)?);
        }
        let bytes = MAX_LEN - left;
        meter.allow(INDEX_READS + INDEX_READS_PER_BYTE * bytes);
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        Ok(Self {
            context,
            meter,
            bytes,
            lookups: 0,
        })
    }

    /// Memory in bytes, estimated.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes + MEMORY_PER_READ * self.meter.spent()
    }

    /// The functions at an address of the file, innermost first. A function without a name is
    /// empty. Nothing if there is no information about the address.
    ///
    /// # Errors
    /// If the information cannot be read. Further lookups make no sense then.
    pub(crate) fn find(&mut self, address: u64) -> Result<Vec<Frame>, Unreadable> {
        self.lookups += 1;
        let total = TOTAL_READS
            + TOTAL_READS_PER_BYTE * self.bytes
            + TOTAL_READS_PER_LOOKUP.saturating_mul(self.lookups);
        let left = total.saturating_sub(self.meter.spent());
        self.meter.allow(left.min(LOOKUP_READS));
        let found = self.frames(address);
        match self.meter.is_exhausted() {
            true => Err(Unreadable),
            // Another part of the file may be whole.
            false => Ok(found.unwrap_or_default()),
        }
    }

    fn frames(&self, address: u64) -> Result<Vec<Frame>, gimli::Error> {
        let mut lookup = self.context.find_frames(address);
        // Split DWARF in other files is not read: lines are in this one.
        let mut found = loop {
            match lookup {
                LookupResult::Output(found) => break found?,
                LookupResult::Load { continuation, .. } => {
                    lookup = addr2line::LookupContinuation::resume(continuation, None);
                }
            }
        };
        let mut frames: Vec<Frame> = Vec::new();
        while let Some(frame) = found.next()? {
            let function = match &frame.function {
                Some(name) => demangle(&name.name.to_slice()?),
                None => String::new(),
            };
            let location = frame.location.as_ref();
            let file = location.and_then(|at| at.file);
            let file = file.filter(|file| file.len() <= MAX_PATH);
            frames.push(Frame {
                function,
                file: file.map(printable),
                line: location.and_then(|at| at.line),
                is_inlined: true,
                is_unknown: false,
            });
            if frames.len() == MAX_FRAMES {
                break;
            }
        }
        // The outermost function is the one that the others are inlined into.
        if let Some(outermost) = frames.last_mut() {
            outermost.is_inlined = false;
        }
        Ok(frames)
    }
}

/// What a read in a section costs. In some, a few bytes become a row of a table.
fn weight(id: SectionId) -> u64 {
    match id {
        SectionId::DebugLine
        | SectionId::DebugAranges
        | SectionId::DebugRanges
        | SectionId::DebugRngLists => 4,
        _ => 1,
    }
}

/// Whether lookups need a section. Descriptions of types, variables and macros are not read.
fn is_needed(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}
