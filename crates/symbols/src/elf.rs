//! Reads the parts of ELF files that lead to symbols.
//!
//! Offsets, sizes and counts in a file are checked against the length of the file, and against
//! limits. Sections are read when they are needed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use object::LittleEndian as LE;
use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD, PT_NOTE,
    ProgramHeader64, SHF_COMPRESSED, SHT_NOBITS, SHT_NOTE, SectionHeader64,
};
use object::pod::{self, Pod};

use crate::build_id::BuildId;
use crate::module::DebugLink;

/// Maximum number of sections and of segments. Executables have less than 100.
const MAX_HEADERS: usize = 4096;
/// Where a file says how many bits its addresses have; its byte order follows.
const EI_CLASS: usize = 4;
/// Maximum size of section names, notes, and links.
const MAX_SMALL: u64 = 1 << 20;

/// An ELF file of 64 bits in the machine's byte order, which is little-endian on all machines that
/// traces come from.
#[derive(Debug)]
pub(crate) struct ElfFile {
    pub(crate) path: PathBuf,
    file: File,
    len: u64,
    sections: Vec<Section>,
    /// Lowest address of a segment that is loaded.
    pub(crate) lowest: Option<u64>,
    pub(crate) build_id: Option<BuildId>,
}

/// A section of a file.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u32,
    pub(crate) is_compressed: bool,
    /// Where it is loaded.
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Index of the section that this one refers to.
    pub(crate) link: usize,
}

/// Names the file that a debug file shares information with, as `dwz` makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AltLink {
    pub(crate) path: Vec<u8>,
    pub(crate) build_id: BuildId,
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl ElfFile {
    /// Opens a file. Anything but a regular file is rejected, and never blocks.
    ///
    /// # Errors
    /// Those of opening and reading, and if it is no ELF file of 64 bits.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = usertrace_os::files::open(OpenOptions::new().read(true), path)?;
        let len = file.metadata()?.len();
        let mut elf = Self {
            path: path.to_owned(),
            file,
            len,
            sections: Vec::new(),
            lowest: None,
            build_id: None,
        };
        elf.read_headers()?;
        Ok(elf)
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The section of this name that has contents.
    pub(crate) fn section(&self, name: &[u8]) -> Option<&Section> {
        let has_contents = |section: &&Section| section.kind != SHT_NOBITS && section.size > 0;
        let mut sections = self.sections.iter();
        sections.find(|section| section.name == name && has_contents(section))
    }

    /// The first section of this type.
    pub(crate) fn section_of_type(&self, kind: u32) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    /// The section with this index.
    pub(crate) fn section_at(&self, index: usize) -> Option<&Section> {
        self.sections.get(index)
    }

    /// Whether it has DWARF.
    pub(crate) fn has_dwarf(&self) -> bool {
        self.section(b".debug_info").is_some()
    }

    /// The bytes of a range of the file.
    ///
    /// # Errors
    /// Those of reading, and if there are fewer bytes, or more than `max`.
    pub(crate) fn bytes(&self, offset: u64, size: u64, max: u64) -> io::Result<Vec<u8>> {
        let end = offset.checked_add(size);
        if size > max {
            return Err(invalid("a part of it is too large"));
        }
        if end.is_none_or(|end| end > self.len) {
            return Err(invalid("a part of it is beyond its end"));
        }
        let mut bytes = Vec::new();
        let size = usize::try_from(size).map_err(|_| invalid("a part of it is too large"))?;
        bytes
            .try_reserve_exact(size)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        bytes.resize(size, 0);
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// The debug link, if it has one.
    pub(crate) fn debug_link(&self) -> Option<DebugLink> {
        let bytes = self.small(b".gnu_debuglink")?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        let crc = bytes.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
        let name = bytes.get(..end)?;
        (!name.is_empty() && !name.contains(&b'/')).then(|| DebugLink {
            name: name.into(),
            crc: u32::from_le_bytes(*crc),
        })
    }

    /// The link to the file with shared debug information, if it has one.
    pub(crate) fn alt_link(&self) -> Option<AltLink> {
        let bytes = self.small(b".gnu_debugaltlink")?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        Some(AltLink {
            path: bytes.get(..end)?.to_vec(),
            build_id: BuildId::new(bytes.get(end + 1..)?)?,
        })
    }

    fn small(&self, name: &[u8]) -> Option<Vec<u8>> {
        let section = self.section(name)?;
        self.bytes(section.offset, section.size, MAX_SMALL).ok()
    }

    fn read_headers(&mut self) -> io::Result<()> {
        let header = size_of::<FileHeader64<LE>>() as u64;
        let bytes = match self.bytes(0, header.min(self.len), header) {
            Ok(bytes) if bytes.starts_with(&ELFMAG) && bytes.len() as u64 == header => bytes,
            Ok(_) => return Err(invalid("it is no ELF file")),
            Err(error) => return Err(error),
        };
        if bytes[EI_CLASS..EI_CLASS + 2] != [ELFCLASS64, ELFDATA2LSB] {
            return Err(invalid("it is no little-endian ELF file of 64 bits"));
        }
        let Some(header) = list::<FileHeader64<LE>>(&bytes, 1)?.first().copied() else {
            return Err(invalid("it is no ELF file"));
        };
        self.read_segments(&header)?;
        self.read_sections(&header)?;
        if self.build_id.is_none() {
            let mut notes = self
                .sections
                .iter()
                .filter(|section| section.kind == SHT_NOTE);
            let found = notes.find_map(|note| self.build_id_in(note.offset, note.size));
            self.build_id = found;
        }
        Ok(())
    }

    fn read_segments(&mut self, header: &FileHeader64<LE>) -> io::Result<()> {
        let count = usize::from(header.e_phnum.get(LE));
        if count == 0 {
            return Ok(());
        }
        let segments: Vec<ProgramHeader64<LE>> =
            self.table(header.e_phoff.get(LE), header.e_phentsize.get(LE), count)?;
        let loaded = segments
            .iter()
            .filter(|segment| segment.p_type.get(LE) == PT_LOAD);
        self.lowest = loaded.map(|segment| segment.p_vaddr.get(LE)).min();
        let mut notes = segments
            .iter()
            .filter(|segment| segment.p_type.get(LE) == PT_NOTE);
        // Debug files keep the program headers, but their notes may be elsewhere.
        self.build_id =
            notes.find_map(|note| self.build_id_in(note.p_offset.get(LE), note.p_filesz.get(LE)));
        Ok(())
    }

    fn read_sections(&mut self, header: &FileHeader64<LE>) -> io::Result<()> {
        let (offset, count) = (header.e_shoff.get(LE), usize::from(header.e_shnum.get(LE)));
        if offset == 0 || count == 0 {
            return Ok(());
        }
        let sections: Vec<SectionHeader64<LE>> =
            self.table(offset, header.e_shentsize.get(LE), count)?;
        let Some(names) = sections.get(usize::from(header.e_shstrndx.get(LE))) else {
            return Err(invalid("it has no names of sections"));
        };
        let (offset, size) = (names.sh_offset.get(LE), names.sh_size.get(LE));
        let names = self.bytes(offset, size, MAX_SMALL)?;
        let sections = sections.iter().map(|section| {
            let name = names
                .get(section.sh_name.get(LE) as usize..)
                .unwrap_or_default();
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            Section {
                // Longer names are none that are looked for.
                name: name.get(..name.len().min(64)).unwrap_or_default().to_vec(),
                kind: section.sh_type.get(LE),
                is_compressed: section.sh_flags.get(LE) & u64::from(SHF_COMPRESSED) != 0,
                address: section.sh_addr.get(LE),
                offset: section.sh_offset.get(LE),
                size: section.sh_size.get(LE),
                link: section.sh_link.get(LE) as usize,
            }
        });
        self.sections = sections.collect();
        Ok(())
    }

    /// Reads a table of headers.
    fn table<T: Pod>(&self, offset: u64, entry: u16, count: usize) -> io::Result<Vec<T>> {
        if usize::from(entry) != size_of::<T>() || count > MAX_HEADERS {
            return Err(invalid("its headers are damaged"));
        }
        let size = (count * size_of::<T>()) as u64;
        list(&self.bytes(offset, size, size)?, count)
    }

    /// The build ID among notes.
    fn build_id_in(&self, offset: u64, size: u64) -> Option<BuildId> {
        const HEADER: usize = 12;
        let bytes = self.bytes(offset, size, MAX_SMALL).ok()?;
        let mut bytes = &*bytes;
        while let Some((header, rest)) = bytes.split_at_checked(HEADER) {
            let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| header[at + n]));
            let (name, len, kind) = (word(0) as usize, word(4) as usize, word(8));
            let at = name.checked_next_multiple_of(4)?;
            let end = at.checked_add(len)?;
            if kind == NT_GNU_BUILD_ID && rest.get(..name) == Some(b"GNU\0") {
                return BuildId::new(rest.get(at..end)?);
            }
            bytes = rest.get(end.checked_next_multiple_of(4)?..)?;
        }
        None
    }
}

/// Copies structures out of bytes, which need not be aligned.
fn list<T: Pod>(bytes: &[u8], count: usize) -> io::Result<Vec<T>> {
    let (slice, _) = pod::slice_from_bytes::<T>(bytes, count)
        .map_err(|()| invalid("its headers are damaged"))?;
    Ok(slice.to_vec())
}
