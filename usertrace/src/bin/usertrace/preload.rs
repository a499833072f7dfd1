//! The library that makes events of a program's use of memory.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// Names a directory in which the library is, if it is not beside this program.
const DIRECTORY_VARIABLE: &str = "USERTRACE_PRELOAD_DIR";
const LIBRARY: &str = "libusertrace_malloc.so";
const VARIABLE: &str = "LD_PRELOAD";

/// A library to be preloaded, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Preload {
    library: PathBuf,
    /// Has a link to it, as the linker's variable cannot hold all paths.
    _directory: Option<TempDir>,
}

impl Preload {
    /// The library `malloc`.
    pub(crate) fn malloc() -> anyhow::Result<Self> {
        let library = find()?;
        let separates = |byte: &u8| matches!(byte, b' ' | b':');
        if !library.as_os_str().as_bytes().iter().any(separates) {
            return Ok(Self {
                library,
                _directory: None,
            });
        }
        let directory = tempfile::Builder::new()
            .prefix("usertrace-")
            .tempdir_in("/tmp");
        let directory = directory.context("cannot make a directory in /tmp")?;
        let link = directory.path().join(LIBRARY);
        symlink(&library, &link)
            .with_context(|| format!("cannot make the link {}", link.display()))?;
        Ok(Self {
            library: link,
            _directory: Some(directory),
        })
    }

    /// The variable of the environment that makes the linker load it, before what it holds already.
    pub(crate) fn variable(&self) -> (OsString, OsString) {
        let mut value = self.library.clone().into_os_string().into_vec();
        if let Some(others) = env::var_os(VARIABLE).filter(|others| !others.is_empty()) {
            value.push(b':');
            value.extend(others.into_vec());
        }
        (VARIABLE.into(), OsString::from_vec(value))
    }
}

fn find() -> anyhow::Result<PathBuf> {
    if let Some(directory) = env::var_os(DIRECTORY_VARIABLE) {
        let library = Path::new(&directory).join(LIBRARY);
        return fs::canonicalize(&library)
            .with_context(|| format!("{DIRECTORY_VARIABLE} has no {}", library.display()));
    }
    let program = env::current_exe().context("cannot tell where this program is")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    for directory in [beside.to_owned(), beside.join("../lib")] {
        if let Ok(library) = fs::canonicalize(directory.join(LIBRARY)) {
            return Ok(library);
        }
    }
    bail!(
        "there is no {LIBRARY} in {} or in ../lib; name its directory in {DIRECTORY_VARIABLE}",
        beside.display()
    )
}
