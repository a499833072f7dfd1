//! Libraries to preload.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries, in a directory whose name `LD_PRELOAD` can hold: it has neither spaces nor colons.
#[derive(Debug)]
pub struct Libraries {
    _directory: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Libraries {
    /// Ours: `libusertrace_NAME.so`, which cargo has built with the test that asks.
    ///
    /// # Panics
    /// If one is not there.
    #[must_use]
    pub fn new(names: &[&str]) -> Self {
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        let own = std::env::current_exe().expect("the kernel knows what runs");
        let paths = names.iter().map(|name| {
            let name = format!("libusertrace_{name}.so");
            let (path, link) = (own.with_file_name(&name), directory.path().join(&name));
            assert!(path.exists(), "{} was not built", path.display());
            std::os::unix::fs::symlink(path, &link).expect("a link");
            link
        });
        let paths = paths.collect();
        Self {
            _directory: directory,
            paths,
        }
    }

    /// All of ours.
    #[must_use]
    pub fn all() -> Self {
        Self::new(&["malloc", "pthread", "dl", "function"])
    }

    /// Somebody else's library, before ours.
    #[must_use]
    pub fn with_before(mut self, path: &Path) -> Self {
        self.paths.insert(0, path.to_owned());
        self
    }

    /// Somebody else's library, behind ours.
    #[must_use]
    pub fn with_behind(mut self, path: &Path) -> Self {
        self.paths.push(path.to_owned());
        self
    }

    /// Has a program load them.
    ///
    /// # Panics
    /// If one's name is not UTF-8.
    pub fn of<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let paths = self.paths.iter().map(|path| path.to_str().expect("UTF-8"));
        command.env("LD_PRELOAD", paths.collect::<Vec<_>>().join(":"))
    }
}
