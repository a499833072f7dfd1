//! The note that a recorder makes first: which trace it records to the directory.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use usertrace_os::files;

use super::{DIRECTORY, value};

/// The note's name, in the recorder's directory.
pub const TRACE: &str = "trace";
/// The note that names the chunk that is written.
pub const CHUNK: &str = "chunk";

/// Which trace a directory has a recording of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingNote {
    /// Its name.
    pub name: String,
    /// Its number: another trace of that name has another one.
    pub generation: u64,
    /// The kernel's run in which it has that number.
    pub boot: String,
    /// Was it created to be recorded? Then it is removed in the end.
    pub created: bool,
}

impl RecordingNote {
    /// Reads the note in the directory `output`. None: nobody records there, and no recorder was
    /// killed there.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn of(output: &Path) -> io::Result<Option<Self>> {
        read_note(&output.join(DIRECTORY).join(TRACE), Self::from_text)
    }

    /// Is it recorded there in chunks?
    #[must_use]
    pub fn has_chunks(output: &Path) -> bool {
        let directory = output.join(DIRECTORY);
        directory.join(TRACE).exists() && directory.join(CHUNK).exists()
    }

    /// The note's text.
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

    /// Is it the same trace, of the same run of the kernel?
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.name, self.generation, &self.boot) == (&other.name, other.generation, &other.boot)
    }
}

/// Reads a note. None: there is no such file.
///
/// # Errors
/// When the file cannot be read, or `parse` does not understand it.
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
