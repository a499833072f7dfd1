//! ELF dumps: `/proc/vmcore`, `makedumpfile -E`, and QEMU's `dump-guest-memory`.

use std::io;
use std::ops::Range;
use std::path::Path;

use object::LittleEndian;
use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_CORE, FileHeader64, PN_XNUM, PT_LOAD, PT_NOTE,
    ProgramHeader64, SectionHeader64,
};
use object::pod::{Pod, from_bytes, slice_from_bytes};

use crate::dump_file::{DumpFile, read_with_zeros};
use crate::memory::read_pieces;
use crate::vmcoreinfo::MAX_NOTES;
use crate::{DumpError, PhysicalMemory, Presence, Vmcoreinfo};

/// Maximum number of segments. A dump has one for each piece of memory, and some machines have
/// many.
const MAX_SEGMENTS: u32 = 1 << 18;

/// A contiguous piece of memory and of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    end: u64,
    /// Offset of `start` in the file.
    offset: u64,
}

/// An ELF dump, which is only read on demand.
#[derive(Debug)]
pub struct ElfDump {
    file: DumpFile,
    /// Memory that the file contains, by address, without overlaps.
    present: Vec<Piece>,
    /// Memory that the machine had, by address, without overlaps.
    memory: Vec<Piece>,
    vmcoreinfo: Vmcoreinfo,
    cut_short: bool,
    machine: u16,
}

impl ElfDump {
    /// Opens a dump.
    ///
    /// # Errors
    /// If the file cannot be read, or is not an ELF dump.
    pub fn open(path: &Path) -> Result<Self, DumpError> {
        let file = DumpFile::open(path).map_err(io("the file"))?;
        Self::of(file)
    }

    pub(super) fn of(file: DumpFile) -> Result<Self, DumpError> {
        let len = file.len();
        let mut magic = [0; ELFMAG.len()];
        let magic_len = file.read_up_to(0, &mut magic).map_err(io("the file"))?;
        if magic_len < magic.len() || magic != ELFMAG {
            return Err(DumpError::Unknown);
        }
        let header = file
            .read_vec(0, size_of::<FileHeader64<LittleEndian>>())
            .map_err(io("the ELF header"))?;
        let header: &FileHeader64<LittleEndian> = pod(&header)?;
        if header.e_ident.class != ELFCLASS64
            || header.e_ident.data != ELFDATA2LSB
            || header.e_type.get(LittleEndian) != ET_CORE
            || usize::from(header.e_phentsize.get(LittleEndian))
                != size_of::<ProgramHeader64<LittleEndian>>()
        {
            return Err(DumpError::NotADump);
        }
        let count = segment_count(&file, header).map_err(io("the number of segments"))?;
        if count > MAX_SEGMENTS {
            return Err(DumpError::Segments(count));
        }
        let segments = file
            .read_vec(
                header.e_phoff.get(LittleEndian),
                count as usize * size_of::<ProgramHeader64<LittleEndian>>(),
            )
            .map_err(io("the program headers"))?;
        let (segments, _) =
            slice_from_bytes::<ProgramHeader64<LittleEndian>>(&segments, count as usize)
                .map_err(|()| DumpError::NotADump)?;

        let cut_short = file.is_cut_short();
        let mut dump = Self {
            file,
            present: Vec::new(),
            memory: Vec::new(),
            vmcoreinfo: Vmcoreinfo::default(),
            cut_short,
            machine: header.e_machine.get(LittleEndian),
        };
        let mut notes_left = MAX_NOTES;
        for segment in segments {
            let offset = segment.p_offset.get(LittleEndian);
            let size = segment.p_filesz.get(LittleEndian);
            dump.cut_short |= offset.saturating_add(size) > len;
            match segment.p_type.get(LittleEndian) {
                PT_LOAD => {
                    let start = segment.p_paddr.get(LittleEndian);
                    dump.present.push(Piece {
                        start,
                        end: start.saturating_add(size),
                        offset,
                    });
                    dump.memory.push(Piece {
                        start,
                        end: start.saturating_add(segment.p_memsz.get(LittleEndian)),
                        offset,
                    });
                }
                PT_NOTE => {
                    let notes = dump.file.read_at_most(offset, size.min(notes_left));
                    notes_left -= notes.len() as u64;
                    // Some dumps have 0 or 1 here, which means 4.
                    let align = match segment.p_align.get(LittleEndian) {
                        8 => 8,
                        _ => 4,
                    };
                    dump.vmcoreinfo.merge_notes(&notes, align);
                }
                _ => {}
            }
        }
        flatten(&mut dump.present);
        flatten(&mut dump.memory);
        Ok(dump)
    }

    /// The vmcoreinfo of the dump's kernel.
    #[must_use]
    pub fn vmcoreinfo(&self) -> &Vmcoreinfo {
        &self.vmcoreinfo
    }

    /// Whether the machine is x86-64.
    pub(super) fn is_x86_64(&self) -> bool {
        self.machine == EM_X86_64
    }

    /// The memory in the dump. The total is limited to the size of the file, whatever the headers
    /// say.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let mut left = self.file.stored();
        self.present.iter().flat_map(move |piece| {
            let in_file = self.file.len().saturating_sub(piece.offset).min(left);
            let len = (piece.end - piece.start).min(in_file);
            left -= len;
            let data = self.file.data(piece.offset..piece.offset + len);
            data.map(|data| {
                let address = |offset| piece.start + (offset - piece.offset);
                address(data.start)..address(data.end)
            })
        })
    }

    /// Whether the file ends too early.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }
}

impl PhysicalMemory for ElfDump {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        read_pieces(address, buffer, |at, rest| {
            let next = self.present.partition_point(|piece| piece.end <= at);
            match self.present.get(next) {
                Some(piece) if piece.start <= at => {
                    let len = rest.len().min((piece.end - at) as usize);
                    // Saturation is harmless: beyond the end of the file, this reads zeros.
                    let offset = piece.offset.saturating_add(at - piece.start);
                    (len, read_with_zeros(&self.file, offset, &mut rest[..len]))
                }
                following => {
                    let gap = following.map_or(u64::MAX, |piece| piece.start - at);
                    let len = rest.len().min(usize::try_from(gap).unwrap_or(usize::MAX));
                    rest[..len].fill(0);
                    (len, self.absence(at, len as u64))
                }
            }
        })
    }
}

impl ElfDump {
    /// The reason why these bytes are not in the file.
    fn absence(&self, start: u64, len: u64) -> Presence {
        let Some(end) = start.checked_add(len) else {
            return Presence::Missing;
        };
        let mut at = start;
        let first = self.memory.partition_point(|piece| piece.end <= start);
        for piece in &self.memory[first..] {
            if piece.start > at || at >= end {
                break;
            }
            at = piece.end;
        }
        if at >= end {
            Presence::Excluded
        } else {
            Presence::Missing
        }
    }
}

/// Sorts pieces, and removes what overlaps with an earlier one.
fn flatten(pieces: &mut Vec<Piece>) {
    pieces.sort_by_key(|piece| piece.start);
    let mut covered = 0;
    pieces.retain_mut(|piece| {
        let start = piece.start.max(covered);
        if start >= piece.end {
            return false;
        }
        piece.offset = piece.offset.saturating_add(start - piece.start);
        piece.start = start;
        covered = piece.end;
        true
    });
}

fn segment_count(file: &DumpFile, header: &FileHeader64<LittleEndian>) -> io::Result<u32> {
    let count = header.e_phnum.get(LittleEndian);
    if count != PN_XNUM {
        return Ok(u32::from(count));
    }
    // The number does not fit into the field, so the first section header has it.
    let section = file.read_vec(
        header.e_shoff.get(LittleEndian),
        size_of::<SectionHeader64<LittleEndian>>(),
    )?;
    let section: &SectionHeader64<LittleEndian> =
        pod(&section).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(section.sh_info.get(LittleEndian))
}

fn io(what: &'static str) -> impl FnOnce(io::Error) -> DumpError {
    move |source| DumpError::Io { what, source }
}

fn pod<T: Pod>(bytes: &[u8]) -> Result<&T, DumpError> {
    let (value, _) = from_bytes(bytes).map_err(|()| DumpError::NotADump)?;
    Ok(value)
}
