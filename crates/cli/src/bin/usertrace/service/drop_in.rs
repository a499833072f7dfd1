//! The drop-in that makes systemd preload the libraries into a service.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use usertrace_os::files;

use super::name::ServiceName;

/// The name of its file, which sorts behind an administrator's `override.conf`.
pub(super) const FILE: &str = "usertrace.conf";
/// The first line. A file that begins with another line is somebody else's.
const FIRST_LINE: &str =
    "# Made by usertrace service enable, and removed by usertrace service disable.";
/// The contents of a drop-in.
#[derive(Debug)]
pub(super) struct DropIn<'a> {
    pub(super) libraries: &'a [PathBuf],
    /// Assignments to the filter of system calls.
    pub(super) calls: Vec<String>,
    /// Make the libraries' directories visible in the root directory of the service.
    pub(super) bind: bool,
    /// Allow the service to map code of the libraries' directories.
    pub(super) execute: bool,
}

impl DropIn<'_> {
    /// The text of the file.
    ///
    /// # Errors
    ///
    /// A path that `LD_PRELOAD` cannot have.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let mut libraries = Vec::new();
        for library in self.libraries {
            let path = library.to_str().unwrap_or_default();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+%@".contains(c);
            if path.is_empty() || !path.chars().all(is_plain) {
                bail!(
                    "{library:?} cannot be preloaded into a service: \
                     its path has special characters"
                );
            }
            // Percent signs are systemd's specifiers.
            libraries.push(path.replace('%', "%%"));
        }
        let mut text = format!(
            "{FIRST_LINE}\n[Service]\nEnvironment=LD_PRELOAD={}\n",
            libraries.join(":")
        );
        let mut directories: Vec<_> = libraries
            .iter()
            .filter_map(|path| Path::new(path).parent())
            .collect();
        directories.dedup();
        let settings = [
            ("BindReadOnlyPaths", self.bind),
            ("ExecPaths", self.execute),
        ];
        for (setting, _) in settings.iter().filter(|(_, is_needed)| *is_needed) {
            for directory in &directories {
                let _ = writeln!(text, "{setting}={}", directory.display());
            }
        }
        for calls in &self.calls {
            if calls.is_empty() {
                text.push_str(
                    "# This systemd has no names for the calls of the trace buffers. So the unit's \
                     list of\n# allowed calls becomes one of refused calls, with the same exceptions.\n",
                );
            }
            let _ = writeln!(text, "SystemCallFilter={calls}");
        }
        Ok(text)
    }
}

/// The names of the libraries that a drop-in preloads: `malloc`, `pthread`, and so on.
///
/// `None`: there is no drop-in.
///
/// # Errors
///
/// The file cannot be read, or is somebody else's.
pub(super) fn libraries(directory: &Path) -> anyhow::Result<Option<Vec<String>>> {
    let file = directory.join(FILE);
    // An image may have anything there.
    let opened = files::open(OpenOptions::new().read(true), &file);
    let text = match opened.and_then(io::read_to_string) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    if text.lines().next() != Some(FIRST_LINE) {
        bail!(
            "{} was not made by usertrace service enable (rename it)",
            file.display()
        );
    }
    let paths = text
        .lines()
        .find_map(|line| line.strip_prefix("Environment=LD_PRELOAD="))
        .unwrap_or_default();
    let name = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let name = name.strip_suffix(".so").unwrap_or(name);
        name.strip_prefix("libusertrace_")
            .unwrap_or(name)
            .to_owned()
    };
    Ok(Some(paths.split(':').map(name).collect()))
}

/// Writes the drop-in, and makes its directory.
pub(super) fn write(directory: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let file = directory.join(FILE);
    let context = || format!("cannot write {} (run as root)", file.display());
    fs::create_dir_all(directory).with_context(context)?;
    let mut new = tempfile::Builder::new()
        .prefix(".usertrace-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(directory)
        .with_context(context)?;
    new.write_all(text.as_bytes()).with_context(context)?;
    new.persist(&file).with_context(context)?;
    Ok(file)
}

/// Removes the drop-in, and its directory if nothing else is in it.
pub(super) fn remove(directory: &Path, name: &ServiceName) -> anyhow::Result<()> {
    if libraries(directory)?.is_none() {
        bail!(
            "service {:?} is not enabled (usertrace service list prints those that are)",
            name.as_str()
        );
    }
    let file = directory.join(FILE);
    fs::remove_file(&file)
        .with_context(|| format!("cannot remove {} (run as root)", file.display()))?;
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    fn text(libraries: &[&str], calls: &[&str], bind: bool) -> anyhow::Result<String> {
        let libraries = paths(libraries);
        let calls = calls.iter().map(|calls| (*calls).to_owned()).collect();
        DropIn {
            libraries: &libraries,
            calls,
            bind,
            execute: false,
        }
        .text()
    }

    #[test]
    fn drop_ins_name_libraries_and_calls() {
        let libraries = [
            "/usr/lib/usertrace/libusertrace_malloc.so",
            "/usr/lib/usertrace/libusertrace_dl.so",
        ];
        let preload = format!(
            "{FIRST_LINE}\n[Service]\nEnvironment=LD_PRELOAD={}\n",
            libraries.join(":")
        );
        assert_eq!(text(&libraries, &[], false).unwrap(), preload);
        assert_eq!(
            text(&libraries, &[], true).unwrap(),
            format!("{preload}BindReadOnlyPaths=/usr/lib/usertrace\n")
        );
        let drop_in = DropIn {
            libraries: &paths(&libraries),
            calls: Vec::new(),
            bind: false,
            execute: true,
        };
        assert_eq!(
            drop_in.text().unwrap(),
            format!("{preload}ExecPaths=/usr/lib/usertrace\n")
        );
        assert_eq!(
            text(&libraries, &["prctl rseq"], false).unwrap(),
            format!("{preload}SystemCallFilter=prctl rseq\n")
        );
        let refusing = text(&libraries, &["", "~@known", "prctl"], false).unwrap();
        let end = "\nSystemCallFilter=\nSystemCallFilter=~@known\nSystemCallFilter=prctl\n";
        assert!(refusing.ends_with(end), "{refusing}");
    }

    #[test]
    fn paths_that_the_linker_would_split_are_refused() {
        assert!(
            text(&["/a%b/c.so"], &[], false)
                .unwrap()
                .contains("LD_PRELOAD=/a%%b/c.so\n")
        );
        for path in ["/a b/c.so", "/a:b.so", "/a\"b.so", "/a\nb.so", ""] {
            assert!(text(&[path], &[], false).is_err(), "{path}");
        }
    }

    #[test]
    fn removing_leaves_what_others_have_made() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a.service.d");
        let name = ServiceName::new("a").unwrap();
        assert_eq!(libraries(&directory).unwrap(), None);
        assert!(remove(&directory, &name).is_err());
        let made = text(
            &["/l/libusertrace_malloc.so", "/l/libusertrace_dl.so"],
            &[],
            false,
        )
        .unwrap();
        write(&directory, &made).unwrap();
        assert_eq!(libraries(&directory).unwrap().unwrap(), ["malloc", "dl"]);
        fs::write(directory.join("override.conf"), "[Service]\n").unwrap();
        remove(&directory, &name).unwrap();
        assert!(directory.join("override.conf").exists());
        fs::remove_file(directory.join("override.conf")).unwrap();
        write(&directory, &made).unwrap();
        remove(&directory, &name).unwrap();
        assert!(!directory.exists());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(FILE), "[Service]\n").unwrap();
        assert!(libraries(&directory).is_err() && remove(&directory, &name).is_err());
        // A FIFO is not waited for.
        fs::remove_file(directory.join(FILE)).unwrap();
        nix::unistd::mkfifo(&directory.join(FILE), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(libraries(&directory).is_err() && remove(&directory, &name).is_err());
    }
}
