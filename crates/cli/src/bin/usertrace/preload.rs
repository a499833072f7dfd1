//! The libraries that `record` preloads to trace unmodified programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// Variable with the directory of the libraries, if they are not installed beside this program.
const DIRECTORY_VARIABLE: &str = "USERTRACE_PRELOAD_DIR";
const VARIABLE: &str = "LD_PRELOAD";

/// Options that select libraries to preload.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// Preload the library that makes events of malloc, free and their like
    #[arg(long)]
    malloc: bool,

    /// Preload the library that makes events of mutexes, read-write locks, conditions and threads
    #[arg(long)]
    pthread: bool,

    /// Preload the library that makes events of dlopen and dlclose
    #[arg(long)]
    dl: bool,

    /// Preload the library that makes events of functions, for programs built with
    /// -finstrument-functions
    #[arg(long)]
    function: bool,
}

impl Wanted {
    fn libraries(&self) -> impl Iterator<Item = &'static str> {
        let libraries = [
            (self.malloc, "libusertrace_malloc.so"),
            (self.pthread, "libusertrace_pthread.so"),
            (self.dl, "libusertrace_dl.so"),
            (self.function, "libusertrace_function.so"),
        ];
        let wanted = libraries.into_iter().filter(|(wanted, _)| *wanted);
        wanted.map(|(_, library)| library)
    }

    /// Finds the selected libraries where they are installed.
    pub(crate) fn installed(&self) -> anyhow::Result<Vec<PathBuf>> {
        self.libraries().map(find).collect()
    }
}

/// Paths of libraries to preload, valid for the lifetime of this value.
#[derive(Debug)]
pub(crate) struct Preload {
    libraries: Vec<PathBuf>,
    /// Links to libraries whose paths contain separators of LD_PRELOAD.
    _directory: Option<TempDir>,
}

impl Preload {
    /// Finds the selected libraries. `None` if no library is selected.
    pub(crate) fn new(wanted: &Wanted) -> anyhow::Result<Option<Self>> {
        let libraries = wanted.installed()?;
        if libraries.is_empty() {
            return Ok(None);
        }
        let is_separator = |byte: &u8| matches!(byte, b' ' | b':');
        let needs_link = |path: &PathBuf| path.as_os_str().as_bytes().iter().any(is_separator);
        if !libraries.iter().any(needs_link) {
            return Ok(Some(Self {
                libraries,
                _directory: None,
            }));
        }
        let directory = tempfile::Builder::new()
            .prefix("usertrace-")
            .tempdir_in("/tmp");
        let directory = directory.context("cannot make a directory in /tmp")?;
        let links = libraries.iter().map(|library| {
            let link = directory
                .path()
                .join(library.file_name().unwrap_or_default());
            symlink(library, &link)
                .with_context(|| format!("cannot make the link {}", link.display()))?;
            Ok(link)
        });
        Ok(Some(Self {
            libraries: links.collect::<anyhow::Result<_>>()?,
            _directory: Some(directory),
        }))
    }

    /// The variable that makes the dynamic linker load them, in front of its present value.
    pub(crate) fn variable(&self) -> (OsString, OsString) {
        let paths = self.libraries.iter().map(|path| path.as_os_str());
        let mut value = paths.collect::<Vec<_>>().join(OsStr::new(":")).into_vec();
        if let Some(others) = env::var_os(VARIABLE).filter(|others| !others.is_empty()) {
            value.push(b':');
            value.extend(others.into_vec());
        }
        (VARIABLE.into(), OsString::from_vec(value))
    }
}

/// Finds an installed library.
fn find(name: &str) -> anyhow::Result<PathBuf> {
    if let Some(directory) = env::var_os(DIRECTORY_VARIABLE) {
        let library = Path::new(&directory).join(name);
        return fs::canonicalize(&library)
            .with_context(|| format!("{DIRECTORY_VARIABLE} has no {}", library.display()));
    }
    let program = env::current_exe().context("cannot tell where this program is")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    for directory in [
        beside.to_owned(),
        beside.join("../lib"),
        beside.join("../lib/usertrace"),
    ] {
        if let Ok(library) = fs::canonicalize(directory.join(name)) {
            return Ok(library);
        }
    }
    bail!(
        "there is no {name} in {}, ../lib or ../lib/usertrace; name its directory in {DIRECTORY_VARIABLE}",
        beside.display()
    )
}
