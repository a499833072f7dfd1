//! Build IDs, which tell builds of an object apart.

use std::path::Path;
use std::{fmt, io};

use crate::elf::ElfFile;

/// Maximum length in bytes. Linkers write 8 to 32.
const MAX: usize = 64;

/// The build ID of an object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(Box<[u8]>);

impl BuildId {
    /// A build ID of these bytes. None if there are no bytes, or more than any linker writes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_valid = (1..=MAX).contains(&bytes.len());
        is_valid.then(|| Self(bytes.into()))
    }

    /// The build ID of a program, library or debug file. None if it has none.
    ///
    /// # Errors
    /// Those of opening and reading, and if it is no ELF file of 64 bits.
    pub fn of_file(path: &Path) -> io::Result<Option<Self>> {
        Ok(ElfFile::open(path)?.build_id)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Lower-case hexadecimal digits, as tools print it.
impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}
