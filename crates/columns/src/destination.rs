//! The directory of an export, which appears as a whole.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use usertrace_os::files;

use crate::ColumnsError;

/// The file that says that a directory is an export. Engines pass over names like this one.
const MARK: &str = "_usertrace.json";

/// How directories are called that are being filled.
const HIDDEN: &str = ".usertrace-";

/// A directory that is being filled.
#[derive(Debug)]
pub(crate) struct Destination {
    /// The directory that it becomes, and how it was named.
    path: PathBuf,
    named: PathBuf,
    /// A directory on the same disk, for the new one and then the earlier one.
    hidden: TempDir,
    /// Locked while it is in use.
    _lock: File,
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
        // The target of symbolic links, so that the links stay.
        let path = match fs::canonicalize(named) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !named.is_symlink() => {
                named.to_owned()
            }
            path => path.map_err(|error| ColumnsError::write(named, error))?,
        };
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let parent = parent.unwrap_or(Path::new(".")).to_owned();
        Self::prepare(&parent, path, named.to_owned())
    }

    /// The same with a directory at any depth below `root`, which has nothing but exports. What
    /// killed processes left there is removed.
    pub(crate) fn below(root: &Path, name: &Path) -> Result<Self, ColumnsError> {
        remove_left(root).map_err(|error| ColumnsError::write(root, error))?;
        let path = root.join(name);
        Self::prepare(root, path.clone(), path)
    }

    /// `beside` is on the disk of `path`.
    fn prepare(beside: &Path, path: PathBuf, named: PathBuf) -> Result<Self, ColumnsError> {
        present(&path, &named)?;
        let failed = |error| ColumnsError::write(&named, error);
        // Nobody else may look in before the directory has its permissions.
        let hidden = tempfile::Builder::new()
            .prefix(HIDDEN)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(beside)
            .map_err(failed)?;
        let lock = files::open_directory(hidden.path()).map_err(failed)?;
        files::flock(&lock, libc::LOCK_EX).map_err(failed)?;
        fs::create_dir(hidden.path().join("new")).map_err(failed)?;
        Ok(Self {
            path,
            named,
            hidden,
            _lock: lock,
        })
    }

    /// Its name, for messages.
    pub(crate) fn named(&self) -> &Path {
        &self.named
    }

    /// Where to write the files.
    pub(crate) fn new_files(&self) -> PathBuf {
        self.hidden.path().join("new")
    }

    /// Puts the new directory in its place. `summary` is JSON.
    pub(crate) fn publish(self, summary: &str) -> Result<(), ColumnsError> {
        let new = self.new_files();
        let mark = File::create_new(new.join(MARK))
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
            let old = self.hidden.path().join("old");
            fs::rename(&self.path, &old)?;
            let renamed = fs::rename(new, &self.path);
            if renamed.is_err() {
                fs::rename(&old, &self.path)?;
            }
            return renamed;
        }
        fs::create_dir_all(self.path.parent().unwrap_or(&self.path))?;
        // An empty directory is replaced, and one with files is not.
        fs::rename(new, &self.path)
    }
}

/// Removes the directories that no process fills any more.
fn remove_left(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(HIDDEN.as_bytes())
        {
            continue;
        }
        // Nobody follows a symbolic link here, and a directory in use is locked.
        let directory = files::open_directory(&entry.path());
        if directory.is_ok_and(|directory| files::flock(&directory, libc::LOCK_EX).is_ok()) {
            match fs::remove_dir_all(entry.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}

/// Whether a complete export is there.
#[must_use]
pub fn is_export(directory: &Path) -> bool {
    directory.join(MARK).exists()
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
