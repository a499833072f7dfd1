//! The first note of a recorder: which trace it records to a directory.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use usertrace_os::files;

use super::{DIRECTORY, value};

/// Name of the note in the recorder's directory.
pub const TRACE: &str = "trace";
/// Name of the note with the current chunk.
pub const CHUNK: &str = "chunk";

/// The trace that is recorded to a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingNote {
    /// Its name.
    pub name: String,
    /// Its number, which differs from that of another trace with the same name.
    pub generation: u64,
    /// Id of the boot in which it has that number.
    pub boot: String,
    /// Whether the recorder created it, and so removes it in the end.
    pub created: bool,
}

impl RecordingNote {
    /// Reads the note in the directory `output`. None if no recorder runs there, or was killed
    /// there.
    ///
    /// # Errors
    /// If the note cannot be read.
    pub fn of(output: &Path) -> io::Result<Option<Self>> {
        read_note(&output.join(DIRECTORY).join(TRACE), Self::from_text)
    }

    /// Whether the recording there has chunks.
    #[must_use]
    pub fn has_chunks(output: &Path) -> bool {
        let directory = output.join(DIRECTORY);
        directory.join(TRACE).exists() && directory.join(CHUNK).exists()
    }

    /// Text of the note.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!(
            "name {}\ngeneration {}\nboot {}\ncreated {}\n",
            self.name, self.generation, self.boot, self.created
        )
    }

    fn from_text(text: &str) -> Option<Self> {
        Some(Self {
            name: value(text, "name")?.to_owned(),
            generation: value(text, "generation")?.parse().ok()?,
            boot: value(text, "boot")?.to_owned(),
            created: value(text, "created")?.parse().ok()?,
        })
    }

    /// Whether it is the same trace, of the same boot.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.name, self.generation, &self.boot) == (&other.name, other.generation, &other.boot)
    }
}

/// Reads a note. None if there is no such file.
///
/// # Errors
/// If the file cannot be read, or `parse` returns None.
pub fn read_note<T>(path: &Path, parse: impl Fn(&str) -> Option<T>) -> io::Result<Option<T>> {
    let text = files::open(OpenOptions::new().read(true), path).and_then(io::read_to_string);
    match text {
        Ok(text) => parse(&text).map(Some).ok_or_else(|| {
            let error = format!("{} is damaged", path.display());
            io::Error::new(io::ErrorKind::InvalidData, error)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
