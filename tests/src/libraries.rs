//! Libraries for `LD_PRELOAD`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program;

/// Libraries, in a directory whose name `LD_PRELOAD` can hold: it has neither spaces nor colons.
#[derive(Debug)]
pub struct Libraries {
    _directory: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Libraries {
    /// Our libraries of these names: `libusertrace_NAME.so`, beside the program that runs.
    ///
    /// # Panics
    /// If one was not built.
    #[must_use]
    pub fn new(names: &[&str]) -> Self {
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        let paths = names.iter().map(|name| {
            let name = format!("libusertrace_{name}.so");
            let link = directory.path().join(&name);
            std::os::unix::fs::symlink(program::path(&name), &link).expect("a link");
            link
        });
        let paths = paths.collect();
        Self {
            _directory: directory,
            paths,
        }
    }

    /// All of our libraries.
    #[must_use]
    pub fn all() -> Self {
        Self::new(&["malloc", "pthread", "dl", "function"])
    }

    /// Adds another library, before ours.
    #[must_use]
    pub fn with_before(mut self, path: &Path) -> Self {
        self.paths.insert(0, path.to_owned());
        self
    }

    /// Adds another library, after ours.
    #[must_use]
    pub fn with_behind(mut self, path: &Path) -> Self {
        self.paths.push(path.to_owned());
        self
    }

    /// Makes a program load them.
    ///
    /// # Panics
    /// If one's name is not UTF-8.
    pub fn of<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let paths = self.paths.iter().map(|path| path.to_str().expect("UTF-8"));
        command.env("LD_PRELOAD", paths.collect::<Vec<_>>().join(":"))
    }
}
