//! Where to look for debug files.

use std::path::PathBuf;

/// Where to look for debug files, apart from the places that the system has for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Directories with debug files, which are searched first. Each may have files by build ID
    /// (`.build-id/xx/….debug`), by name, and by the path of the module, like a copy of the file
    /// system that the program saw.
    pub debug_dirs: Vec<PathBuf>,
    /// Ask `debuginfod` servers, if the environment variable `DEBUGINFOD_URLS` names some.
    pub debuginfod: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            debug_dirs: Vec::new(),
            debuginfod: true,
        }
    }
}
