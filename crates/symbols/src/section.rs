//! Contents of sections, which may be compressed.

use std::io::{self, Read as _};

use object::elf::{ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};

use crate::elf::{ElfFile, Section};

/// Length of the header of a compressed section.
const HEADER: usize = 24;

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads a section, and decompresses it. `left` is how many bytes it may have; its size is
/// subtracted.
///
/// # Errors
/// Those of reading, and if the section is damaged or too large.
pub(crate) fn contents(elf: &ElfFile, section: &Section, left: &mut u64) -> io::Result<Vec<u8>> {
    let bytes = elf.bytes(section.offset, section.size, *left)?;
    let bytes = match section.is_compressed {
        true => decompress(&bytes, *left)?,
        false => bytes,
    };
    *left = left.saturating_sub(bytes.len() as u64);
    Ok(bytes)
}

fn decompress(bytes: &[u8], left: u64) -> io::Result<Vec<u8>> {
    let Some((header, bytes)) = bytes.split_at_checked(HEADER) else {
        return Err(invalid("a compressed section is cut short"));
    };
    let kind = u32::from_le_bytes([0, 1, 2, 3].map(|n| header[n]));
    let size = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| header[8 + n]));
    if size > left {
        return Err(invalid("a compressed section is too large"));
    }
    let out = match kind {
        ELFCOMPRESS_ZLIB => {
            miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(bytes, size as usize)
                .map_err(|_| invalid("a compressed section is damaged"))?
        }
        ELFCOMPRESS_ZSTD => {
            let mut out = Vec::new();
            let decoder = ruzstd::decoding::StreamingDecoder::new(bytes)
                .map_err(|_| invalid("a compressed section is damaged"))?;
            decoder.take(size).read_to_end(&mut out)?;
            out
        }
        _ => return Err(invalid("a section is compressed in an unknown way")),
    };
    match out.len() as u64 == size {
        true => Ok(out),
        false => Err(invalid("a compressed section is damaged")),
    }
}
