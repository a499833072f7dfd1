//! The directory of an export, which appears as a whole.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::ColumnsError;

/// The file that says that a directory is an export. Engines pass over names like this one.
const MARK: &str = "_usertrace.json";

/// A directory that is being filled.
#[derive(Debug)]
pub(crate) struct Destination {
    /// The directory that it becomes, and how it was named.
    path: PathBuf,
    named: PathBuf,
    /// A directory beside it, for the new one and then the earlier one.
    beside: TempDir,
}

/// What is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Present {
    Nothing,
    Empty,
    EarlierExport,
}

impl Destination {
    /// Prepares a directory that will replace what an earlier export left at `path`. Anything else
    /// that is there is refused.
    pub(crate) fn new(named: &Path) -> Result<Self, ColumnsError> {
        let failed = |error| ColumnsError::write(named, error);
        // The target of symbolic links, so that the links stay.
        let path = match fs::canonicalize(named) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !named.is_symlink() => {
                named.to_owned()
            }
            path => path.map_err(failed)?,
        };
        present(&path, named)?;
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        // Nobody else may look in before the directory has its permissions.
        let beside = tempfile::Builder::new()
            .prefix(".usertrace-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent.unwrap_or(Path::new(".")))
            .map_err(failed)?;
        let destination = Self {
            path,
            named: named.to_owned(),
            beside,
        };
        fs::create_dir(destination.new_files()).map_err(failed)?;
        Ok(destination)
    }

    /// Its name, for messages.
    pub(crate) fn named(&self) -> &Path {
        &self.named
    }

    /// Where to write the files.
    pub(crate) fn new_files(&self) -> PathBuf {
        self.beside.path().join("new")
    }

    /// Puts the new directory in its place. `summary` is JSON.
    pub(crate) fn publish(self, summary: &str) -> Result<(), ColumnsError> {
        let new = self.new_files();
        let mark = fs::File::create_new(new.join(MARK))
            .and_then(|mut file| file.write_all(summary.as_bytes()));
        mark.map_err(|error| ColumnsError::write(&self.named.join(MARK), error))?;
        let present = present(&self.path, &self.named)?;
        self.replace(&new, present)
            .map_err(|error| ColumnsError::write(&self.named, error))
    }

    fn replace(&self, new: &Path, present: Present) -> io::Result<()> {
        if present != Present::Nothing {
            let there = fs::metadata(&self.path)?;
            // Only root can change the owner; for other users the new directory stays their own.
            let _ = chown(new, Some(there.uid()), Some(there.gid()));
            fs::set_permissions(new, Permissions::from_mode(there.mode() & 0o7777))?;
        }
        if present == Present::EarlierExport {
            let old = self.beside.path().join("old");
            fs::rename(&self.path, &old)?;
            let renamed = fs::rename(new, &self.path);
            if renamed.is_err() {
                fs::rename(&old, &self.path)?;
            }
            return renamed;
        }
        // An empty directory is replaced, and one with files is not.
        fs::rename(new, &self.path)
    }
}

/// Finds out what is there, and refuses what must not be replaced.
fn present(path: &Path, named: &Path) -> Result<Present, ColumnsError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Present::Nothing),
        Err(error) => return Err(ColumnsError::write(named, error)),
    };
    let (mut is_marked, mut others, mut is_empty) = (false, 0, true);
    for entry in entries {
        let entry = entry.map_err(|error| ColumnsError::write(named, error))?;
        is_empty = false;
        let name = entry.file_name();
        if name == MARK {
            is_marked = true;
        } else if !name.as_encoded_bytes().starts_with(b"host=") {
            others += 1;
        }
    }
    match (is_empty, is_marked && others == 0) {
        (true, _) => Ok(Present::Empty),
        (_, true) => Ok(Present::EarlierExport),
        _ => Err(ColumnsError::NotEmpty {
            path: named.to_owned(),
        }),
    }
}
