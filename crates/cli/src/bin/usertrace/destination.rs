//! The file, device, pipe or standard output that a command writes its result to.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use tempfile::NamedTempFile;

/// Writes the output of `write` to `path`, or to standard output if `path` is "-". Returns the
/// number of bytes.
///
/// A regular file is replaced as a whole, or stays unchanged on errors. It keeps its permissions
/// and owner, and a symbolic link to it stays. Devices, FIFOs and the like are written to directly.
/// A reader that closes the pipe early is no error.
///
/// # Errors
/// Those of `write`, and of the files.
pub(crate) fn fill(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<u64> {
    if path == Path::new("-") {
        return stream(io::stdout().lock(), write);
    }
    match fs::metadata(path) {
        Ok(there) if there.is_file() => replace(path, &there, write),
        Ok(_) => stream(OpenOptions::new().write(true).open(path)?, write),
        // A dangling link: create the file that it names.
        Err(_) if path.is_symlink() => stream(File::create(path)?, write),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The mode of any new file; the umask reduces it.
            let mut new = create_beside(path, 0o666)?;
            let len = stream(new.as_file_mut(), write)?;
            new.persist(path)?;
            Ok(len)
        }
        Err(error) => Err(error),
    }
}

/// Replaces a regular file.
fn replace(
    path: &Path,
    there: &fs::Metadata,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<u64> {
    // The target of symbolic links, so that the links stay.
    let path = fs::canonicalize(path)?;
    // No one else may read the file before it has the old file's permissions.
    let mut new = match create_beside(&path, 0o600) {
        // The directory may forbid new files while the file itself is writable.
        Err(error) if is_refused(&error) => return stream(File::create(&path)?, write),
        new => new?,
    };
    let len = stream(new.as_file_mut(), write)?;
    // Only root can change the owner; for other users the new file stays their own.
    let _ = fchown(new.as_file(), Some(there.uid()), Some(there.gid()));
    new.as_file()
        .set_permissions(Permissions::from_mode(there.mode() & 0o777))?;
    new.persist(&path)?;
    Ok(len)
}

fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// A new file in the same directory, removed when it is dropped.
fn create_beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    tempfile::Builder::new()
        .prefix(".usertrace-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
}

/// Writes to an open file. A closed pipe is no error.
fn stream(to: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
    let mut counter = Counter(BufWriter::with_capacity(1 << 20, to), 0);
    match write(&mut counter).and_then(|()| counter.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(counter.1),
    }
}

/// Counts the bytes written through it.
struct Counter<W>(W, u64);

impl<W: Write> Write for Counter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.0.write(bytes)?;
        self.1 += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use super::*;

    fn put(path: &Path, text: &str) -> io::Result<u64> {
        fill(path, |to| to.write_all(text.as_bytes()))
    }

    fn fails(path: &Path) -> io::Error {
        let failed = fill(path, |to| {
            to.write_all(b"a part")?;
            to.flush()?;
            Err(io::Error::other("no more"))
        });
        failed.unwrap_err()
    }

    #[test]
    fn regular_file_is_replaced_atomically() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(put(&path, "first").unwrap(), 5);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        fails(&path);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        put(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        // A file that only its owner may read is never readable by others, not even while it is
        // written.
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let written = fill(&path, |_| {
            for entry in fs::read_dir(&directory)? {
                assert_eq!(entry?.metadata()?.mode() & 0o077, 0);
            }
            Ok(())
        });
        assert_eq!(written.unwrap(), 0);
        fails(&directory.path().join("another"));
        // No temporary file is left.
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn symbolic_links_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
        symlink("file", &link).unwrap();
        for text in ["made", "replaced"] {
            put(&link, text).unwrap();
            assert!(link.is_symlink());
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn fifo_is_written_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let [fifo, link] = ["fifo", "link"].map(|name| directory.path().join(name));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("fifo", &link).unwrap();
        for path in [&fifo, &link] {
            let reader = std::thread::spawn({
                let fifo = fifo.clone();
                move || {
                    let mut text = String::new();
                    File::open(fifo).unwrap().read_to_string(&mut text).unwrap();
                    text
                }
            });
            assert_eq!(put(path, "text").unwrap(), 4);
            assert_eq!(reader.join().unwrap(), "text");
            assert!(fs::metadata(path).unwrap().file_type().is_fifo());
        }
        assert!(put(directory.path(), "text").is_err());
        assert!(directory.path().is_dir());
    }
}
