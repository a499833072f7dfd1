//! The libraries that make events of what a program does.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// Names a directory in which the libraries are, if they are not beside this program.
const DIRECTORY_VARIABLE: &str = "USERTRACE_PRELOAD_DIR";
const VARIABLE: &str = "LD_PRELOAD";

/// Which libraries are to be preloaded.
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
}

/// Libraries to be preloaded, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Preload {
    libraries: Vec<PathBuf>,
    /// Has links to them, as the linker's variable cannot hold all paths.
    _directory: Option<TempDir>,
}

impl Preload {
    /// Those that are wanted, if any are.
    pub(crate) fn new(wanted: &Wanted) -> anyhow::Result<Option<Self>> {
        let libraries = wanted.libraries().map(find);
        let libraries = libraries.collect::<anyhow::Result<Vec<_>>>()?;
        if libraries.is_empty() {
            return Ok(None);
        }
        let separates = |byte: &u8| matches!(byte, b' ' | b':');
        let names = |path: &PathBuf| path.as_os_str().as_bytes().iter().any(separates);
        if !libraries.iter().any(names) {
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

    /// The variable of the environment that makes the linker load them, before what it holds
    /// already.
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
