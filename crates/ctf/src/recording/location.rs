//! The location at which the fallback's workers start traces: the output directory or a chunk in
//! it. `usertrace record` names it in a file beside the traces.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use usertrace_os::files;

use super::{Chunk, DIRECTORY, RELAY_NOTE};

/// The file that names the location. It is not the note of the consumer's chunk, which is never
/// removed.
const NAME: &str = "place";
/// Longest text that names a location.
const LEN: u64 = 128;
/// The line that tells workers to leave events in the rings for now.
const HOLD: &str = "hold true\n";
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

    /// Contents of that file for a recording that has no room for more at present: workers leave
    /// events in the rings, except at the end of a process or a chunk.
    #[must_use]
    pub fn to_text_on_hold(self) -> Option<String> {
        match self {
            Self::Chunk(chunk) => Some(chunk.to_text() + HOLD),
            Self::Directory | Self::Nowhere => self.to_text(),
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
        Self::named_with_hold(output).map(|(location, _)| location)
    }

    /// Reads that file like [`named`](Self::named), and whether workers are to leave events in the
    /// rings. They are not when the sender that would make room was killed: nobody would read the
    /// rings any more.
    ///
    /// # Errors
    /// As for [`named`](Self::named).
    pub fn named_with_hold(output: &Path) -> io::Result<(Self, bool)> {
        let options = &mut OpenOptions::new();
        let file = match files::open(options.read(true), &Self::file(output)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Self::Directory, false));
            }
            file => file?,
        };
        let mut text = String::new();
        file.take(LEN).read_to_string(&mut text)?;
        let why = || io::Error::new(io::ErrorKind::InvalidData, "it names no chunk");
        let location = Self::from_text(&text).ok_or_else(why)?;
        Ok((location, text.ends_with(HOLD) && is_sent(output)))
    }
}

/// Whether a process sends the recording to a relay: it has the lock of the note.
#[must_use]
pub fn is_sent(output: &Path) -> bool {
    let note = files::open(OpenOptions::new().read(true), &output.join(RELAY_NOTE));
    note.and_then(|note| files::is_locked(&note))
        .unwrap_or(false)
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
        let (chunk, nowhere) = (TraceLocation::Chunk(chunk), TraceLocation::Nowhere);
        let note = fs::File::create(path.join(RELAY_NOTE)).unwrap();
        files::lock(&note).unwrap();
        for (place, text, is_held) in [
            (chunk, chunk.to_text(), false),
            (chunk, chunk.to_text_on_hold(), true),
            (nowhere, nowhere.to_text_on_hold(), false),
        ] {
            fs::write(TraceLocation::file(path), text.unwrap()).unwrap();
            let named = TraceLocation::named_with_hold(path).unwrap();
            assert_eq!(named, (place, is_held));
        }
        // The sender was killed.
        drop(note);
        fs::write(TraceLocation::file(path), chunk.to_text_on_hold().unwrap()).unwrap();
        let named = TraceLocation::named_with_hold(path).unwrap();
        assert_eq!(named, (chunk, false));
    }
}
