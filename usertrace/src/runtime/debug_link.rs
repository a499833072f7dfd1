//! Reads the debug link of a loaded object, `.gnu_debuglink`: the name of the file that has the
//! debug information, and its CRC. It is in no segment, so it is read from the object's file.

use std::ffi::CStr;

use crate::os::file::Opened;
use crate::os::linker::Object;
use crate::os::memory::is_readable;

/// The name of the section, with its NUL.
const SECTION: &[u8] = b".gnu_debuglink\0";
/// Type and flag of sections (`elf.h`).
const SHT_PROGBITS: u32 = 1;
const SHF_ALLOC: u64 = 2;
/// Most sections that are looked at.
const MAX_SECTIONS: u16 = 4096;
/// Sections whose headers are read at once.
const AT_ONCE: u16 = 8;
/// Longest section: a file's name, a NUL, up to 3 bytes of padding, and the CRC.
const MAX_LEN: usize = 264;

/// A debug link.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DebugLink {
    name: [u8; MAX_LEN],
    len: usize,
    /// Of the file that has the debug information.
    pub(super) crc: u32,
}

impl DebugLink {
    /// The name of the file: not empty, without slashes.
    pub(super) fn name(&self) -> &[u8] {
        &self.name[..self.len]
    }

    /// The debug link of an object. None if it has none, or if its file was replaced or cannot be
    /// read.
    ///
    /// It opens the file, so code that events may come from must not call this. Allocates nothing;
    /// preserves `errno`.
    pub(super) fn of(object: &Object<'_>) -> Option<Self> {
        let mut path = [0; libc::PATH_MAX as usize];
        let path = match object.name {
            [] => c"/proc/self/exe",
            name => {
                // With a NUL behind it.
                path.get_mut(..name.len())?.copy_from_slice(name);
                CStr::from_bytes_until_nul(&path).ok()?
            }
        };
        let file = Opened::regular(path).ok()?;
        let header = read::<libc::Elf64_Ehdr>(&file, 0)?;
        let is_elf = header.e_ident[..4] == *b"\x7fELF"
            && header.e_ident[libc::EI_CLASS] == libc::ELFCLASS64
            && usize::from(header.e_shentsize) == size_of::<libc::Elf64_Shdr>();
        if !is_elf || !is_loaded(object, &header) {
            return None;
        }
        Self::in_file(&file, &header)
    }

    fn in_file(file: &Opened, header: &libc::Elf64_Ehdr) -> Option<Self> {
        let offset = |number: u16| {
            let offset = u64::from(number) * size_of::<libc::Elf64_Shdr>() as u64;
            header.e_shoff.checked_add(offset)
        };
        let names = read::<libc::Elf64_Shdr>(file, offset(header.e_shstrndx)?)?;
        // Most programs have no such section, and many others: this takes one call.
        if !has_name(file, &names) {
            return None;
        }
        // The section is near the end of the table, so that is read first.
        let mut end = header.e_shnum.min(MAX_SECTIONS);
        while end > 0 {
            let first = end.saturating_sub(AT_ONCE);
            let count = usize::from(end - first);
            let len = count * size_of::<libc::Elf64_Shdr>();
            let sections: [libc::Elf64_Shdr; AT_ONCE as usize] =
                read_start(file, offset(first)?, len)?;
            for section in sections[..count].iter().rev() {
                if section.sh_type != SHT_PROGBITS || section.sh_flags & SHF_ALLOC != 0 {
                    continue;
                }
                let mut name = [0; SECTION.len()];
                let at = names.sh_offset.checked_add(section.sh_name.into())?;
                if read_into(file, &mut name, at).is_some() && name == *SECTION {
                    let mut bytes = [0; MAX_LEN];
                    let len = section.sh_size as usize;
                    let bytes = bytes.get_mut(..len)?;
                    read_into(file, bytes, section.sh_offset)?;
                    return Self::parse(bytes);
                }
            }
            end = first;
        }
        None
    }

    fn parse(section: &[u8]) -> Option<Self> {
        let len = section.iter().position(|&byte| byte == 0)?;
        let name = &section[..len];
        // Readers look for it in directories of their own. In descriptions, `-` stands for none.
        let is_name = !matches!(name, b"" | b"." | b".." | b"-") && !name.contains(&b'/');
        let crc = section
            .get((len + 1).next_multiple_of(4)..)?
            .first_chunk()?;
        let mut link = Self {
            name: [0; MAX_LEN],
            len,
            crc: u32::from_ne_bytes(*crc),
        };
        link.name[..len].copy_from_slice(name);
        is_name.then_some(link)
    }
}

/// Whether the names of sections contain the section's. True if there are too many to look.
fn has_name(file: &Opened, names: &libc::Elf64_Shdr) -> bool {
    let mut text = [0; 1024];
    let len = usize::try_from(names.sh_size).unwrap_or(usize::MAX);
    let Some(text) = text.get_mut(..len) else {
        return true;
    };
    read_into(file, text, names.sh_offset).is_some()
        && text.windows(SECTION.len()).any(|name| name == SECTION)
}

/// Whether the file with this header is that of a loaded object: if somebody replaced it, its
/// sections are elsewhere.
fn is_loaded(object: &Object<'_>, header: &libc::Elf64_Ehdr) -> bool {
    if !is_readable(object.base) {
        return false;
    }
    let loaded = std::ptr::with_exposed_provenance::<libc::Elf64_Ehdr>(object.base);
    // SAFETY: the first page of the lowest segment, which is readable. The object stays loaded as
    // long as the linker's call that passes it.
    let loaded = unsafe { loaded.read() };
    let parts = |header: &libc::Elf64_Ehdr| {
        let addresses = [header.e_entry, header.e_phoff, header.e_shoff];
        (header.e_ident, addresses, header.e_shnum, header.e_shstrndx)
    };
    parts(&loaded) == parts(header)
}

fn read_into(file: &Opened, bytes: &mut [u8], offset: u64) -> Option<()> {
    (file.read_at(bytes, offset) == Ok(bytes.len())).then_some(())
}

/// Reads one of the structures of ELF files, which are plain data.
fn read<T: Plain>(file: &Opened, offset: u64) -> Option<T> {
    read_start(file, offset, size_of::<T>())
}

/// Reads the first `len` bytes of a structure. The others are zeros.
fn read_start<T: Plain>(file: &Opened, offset: u64, len: usize) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the value's own bytes, which are zeroed.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    read_into(file, bytes.get_mut(..len)?, offset)?;
    // SAFETY: any bytes are a valid value, as `Plain` says.
    Some(unsafe { value.assume_init() })
}

/// # Safety
/// Any bytes must be a valid value.
unsafe trait Plain {}

// SAFETY: all fields are integers or arrays of them.
unsafe impl Plain for libc::Elf64_Ehdr {}
// SAFETY: all fields are integers.
unsafe impl Plain for libc::Elf64_Shdr {}
// SAFETY: an array of such structures.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_may_contain_anything() {
        let link = |section: &[u8]| {
            let link = DebugLink::parse(section)?;
            Some((String::from_utf8_lossy(link.name()).into_owned(), link.crc))
        };
        let crc = 0x1234_5678u32.to_ne_bytes();
        let section = |name: &[u8]| {
            let mut section = name.to_vec();
            section.push(0);
            section.resize(section.len().next_multiple_of(4), 0);
            [&section[..], &crc].concat()
        };
        for name in ["a", "abc", "shop.debug", "x y"] {
            let bytes = section(name.as_bytes());
            assert_eq!(link(&bytes), Some((name.to_owned(), 0x1234_5678)));
            for len in 0..bytes.len() {
                assert_eq!(link(&bytes[..len]), None);
            }
        }
        for name in ["", ".", "..", "-", "a/b", "/a"] {
            assert_eq!(link(&section(name.as_bytes())), None, "{name}");
        }
        for bytes in [&[][..], &[0], &[0xff; 64], &[0; 64], b"abc"] {
            assert_eq!(link(bytes), None);
        }
    }

    /// A file that is not the loaded one has no debug link for it.
    #[test]
    fn other_files_are_recognised() {
        let own = |name| Object {
            base: 0x1000,
            size: 0x1000,
            is_pic: true,
            build_id: &[],
            name,
        };
        for name in [
            &b"/proc/self/exe"[..],
            b"",
            b"/dev/zero",
            b"/no/such",
            b"/proc",
            &[b'a'; 5000],
        ] {
            assert_eq!(DebugLink::of(&own(name)), None);
        }
    }
}
