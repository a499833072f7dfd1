//! The checksum of debug links.

use std::fs::File;
use std::io::{self, Read as _};

/// Maximum size of a file whose checksum is computed, which bounds the time.
const MAX_LEN: u64 = 8 << 30;

/// The CRC-32 of a whole file, as `.gnu_debuglink` has it.
///
/// # Errors
/// Those of reading, or if the file is too large.
pub(crate) fn of_file(file: &File) -> io::Result<u32> {
    if file.metadata()?.len() > MAX_LEN {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is too large",
        ));
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = vec![0; 1 << 20];
    // The file may grow meanwhile.
    let mut file = file.take(MAX_LEN);
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hasher.finalize()),
            len => hasher.update(&bytes[..len]),
        }
    }
}
