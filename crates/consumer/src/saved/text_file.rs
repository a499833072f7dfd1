//! Reads files of saved traces, which need not be what they should.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::error::SavedTraceError;
use super::parse::parse;
use super::trace::SavedFile;

/// The largest file. The settings of 16 traces take less than a tenth of it.
const MAX_LEN: u64 = 1 << 20;

/// Reads a file of saved traces; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is not a regular file, is larger than 1 MiB, or has a wrong line.
pub fn read_saved_traces(path: &Path) -> Result<SavedFile, SavedTraceError> {
    let read_error = |source| SavedTraceError::Read {
        path: path.to_owned(),
        source,
    };
    let bytes = match path.as_os_str() == "-" {
        true => read_bounded(io::stdin().lock()),
        false => read_bounded(open(path)?),
    };
    let bytes = bytes.map_err(read_error)?;
    if bytes.len() as u64 > MAX_LEN {
        return Err(SavedTraceError::NotText {
            path: path.to_owned(),
            what: "it has more than 1 MiB".to_owned(),
        });
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(path, text),
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            Err(SavedTraceError::Invalid {
                path: path.to_owned(),
                line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
                what: "the text is not UTF-8".to_owned(),
            })
        }
    }
}

/// Opens a regular file.
fn open(path: &Path) -> Result<File, SavedTraceError> {
    let read_error = |source| SavedTraceError::Read {
        path: path.to_owned(),
        source,
    };
    // Opening a FIFO would wait for its writer.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(read_error)?;
    match file.metadata().map_err(read_error)?.is_file() {
        true => Ok(file),
        false => Err(SavedTraceError::NotText {
            path: path.to_owned(),
            what: "it is not a regular file".to_owned(),
        }),
    }
}

/// Reads at most one byte more than a file may have.
fn read_bounded(input: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The files of saved traces in a directory: all `*.toml` but hidden ones, by name.
///
/// # Errors
/// If the directory cannot be read.
pub fn saved_traces_below(directory: &Path) -> Result<Vec<PathBuf>, SavedTraceError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if name.ends_with(b".toml") && !name.starts_with(b".") {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    };
    list().map_err(|source| SavedTraceError::Read {
        path: directory.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// A FIFO does not block, and nothing is read beyond the limit.
    ///
    /// Requirements: F4
    #[test]
    fn files_that_are_no_text_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("large"), "#".repeat(10 << 20)).unwrap();
        fs::write(
            at("limit"),
            format!("version = 1\n#{}", "x".repeat((1 << 20) - 13)),
        )
        .unwrap();
        fs::write(at("bytes"), b"version = 1\n# \n# \xff\n").unwrap();
        fs::write(at("nul"), b"version = 1\n\0\n").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::create_dir(at("directory")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        for (name, says) in [
            ("large", "it has more than 1 MiB"),
            ("bytes", "bytes:3: the text is not UTF-8"),
            ("nul", "nul:2: "),
            ("empty", "empty:1: version = 1 is missing"),
            ("directory", "it is not a regular file"),
            ("fifo", "it is not a regular file"),
            ("zero", "it is not a regular file"),
            ("missing", "cannot read "),
        ] {
            let error = read_saved_traces(&at(name)).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
        assert_eq!(read_saved_traces(&at("limit")).unwrap().traces.len(), 0);
    }

    #[test]
    fn files_of_a_directory_come_by_name() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.toml", "a.toml", ".c.toml", "d.toml~", "10.toml", "e"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let paths = saved_traces_below(directory.path()).unwrap();
        let names: Vec<_> = paths.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["10.toml", "a.toml", "b.toml"]);
        let error = saved_traces_below(&directory.path().join("none")).unwrap_err();
        assert!(error.to_string().starts_with("cannot read "), "{error}");
    }
}
