//! The location at which the fallback's workers start traces: the output directory or a chunk in
//! it. `usertrace record` names it in a file beside the traces.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use usertrace_os::files;

use super::{Chunk, DIRECTORY};

/// The file that names the location. It is not the note of the consumer's chunk, which is never
/// removed.
const NAME: &str = "place";
/// Longest text that names a location.
const LEN: u64 = 128;
/// Text of [`TraceLocation::Nowhere`].
const NOWHERE: &str = "nowhere\n";

/// A location for traces. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceLocation {
    /// The output directory.
    #[default]
    Directory,
    /// A chunk in the output directory.
    Chunk(Chunk),
    /// None: the recording has reached its size limit.
    Nowhere,
}

impl TraceLocation {
    /// Number of the chunk, or 0.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Chunk(chunk) => chunk.number,
            Self::Directory | Self::Nowhere => 0,
        }
    }

    /// The directory of the traces. None for `Nowhere`.
    #[must_use]
    pub fn below(self, output: &Path) -> Option<PathBuf> {
        match self {
            Self::Directory => Some(output.to_owned()),
            Self::Chunk(chunk) => Some(output.join(chunk.current())),
            Self::Nowhere => None,
        }
    }

    /// The file that names the location, below `output`.
    #[must_use]
    pub fn file(output: &Path) -> PathBuf {
        output.join(DIRECTORY).join(NAME)
    }

    /// Contents of that file. None if there must be no file.
    #[must_use]
    pub fn to_text(self) -> Option<String> {
        match self {
            Self::Directory => None,
            Self::Chunk(chunk) => Some(chunk.to_text()),
            Self::Nowhere => Some(NOWHERE.to_owned()),
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        match text {
            NOWHERE => Some(Self::Nowhere),
            text => Chunk::from_text(text).map(Self::Chunk),
        }
    }

    /// Reads that file. Without it, the location is the output directory.
    ///
    /// # Errors
    /// If the file cannot be read, or names no location.
    pub fn named(output: &Path) -> io::Result<Self> {
        let options = &mut OpenOptions::new();
        let file = match files::open(options.read(true), &Self::file(output)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Directory),
            file => file?,
        };
        let mut text = String::new();
        file.take(LEN).read_to_string(&mut text)?;
        let why = || io::Error::new(io::ErrorKind::InvalidData, "it names no chunk");
        Self::from_text(&text).ok_or_else(why)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn location_is_read_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(
            TraceLocation::named(path).unwrap(),
            TraceLocation::Directory
        );
        fs::create_dir(path.join(DIRECTORY)).unwrap();
        let chunk = Chunk {
            number: 3,
            begin: 7,
        };
        for place in [TraceLocation::Chunk(chunk), TraceLocation::Nowhere] {
            fs::write(TraceLocation::file(path), place.to_text().unwrap()).unwrap();
            assert_eq!(TraceLocation::named(path).unwrap(), place);
        }
    }
}
