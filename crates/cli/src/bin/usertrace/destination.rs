//! The file, device, pipe or standard output that a command writes its result to.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use tempfile::NamedTempFile;

/// Puts what `write` writes at `path`, or on standard output if that is "-". Returns how many bytes
/// there were.
///
/// A regular file is replaced by a whole one, or stays as it was. Its permissions and owner stay,
/// and so does a symbolic link to it. What is no regular file, such as a device or a FIFO, is
/// written to. It is no error if who reads from a pipe has read enough.
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
        // A link to nothing: the file is made where it leads to.
        Err(_) if path.is_symlink() => stream(File::create(path)?, write),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // As for any new file: the umask takes from this.
            let mut new = beside(path, 0o666)?;
            let len = stream(new.as_file_mut(), write)?;
            new.persist(path)?;
            Ok(len)
        }
        Err(error) => Err(error),
    }
}

/// Replaces a file.
fn replace(
    path: &Path,
    there: &fs::Metadata,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<u64> {
    // Where links lead to.
    let path = fs::canonicalize(path)?;
    // Until it is whole, for nobody else.
    let mut new = match beside(&path, 0o600) {
        // A file may be written where no other one may be made.
        Err(error) if is_refused(&error) => return stream(File::create(&path)?, write),
        new => new?,
    };
    let len = stream(new.as_file_mut(), write)?;
    // Only root can give files away; others own what they replace.
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
fn beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    tempfile::Builder::new()
        .prefix(".usertrace-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
}

/// Writes to what is open.
fn stream(to: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
    let mut counter = Counter(BufWriter::with_capacity(1 << 20, to), 0);
    match write(&mut counter).and_then(|()| counter.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(counter.1),
    }
}

/// Counts what goes through it.
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
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(put(&path, "first").unwrap(), 5);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        fails(&path);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        put(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        // Nobody may read what is to be secret, as long as it is written either.
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let written = fill(&path, |_| {
            for entry in fs::read_dir(&directory)? {
                assert_eq!(entry?.metadata()?.mode() & 0o077, 0);
            }
            Ok(())
        });
        assert_eq!(written.unwrap(), 0);
        fails(&directory.path().join("another"));
        // No part of anything is left.
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn symbolic_links_stay() {
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
    fn what_is_no_file_is_written_to() {
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
