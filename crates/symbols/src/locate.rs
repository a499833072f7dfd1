//! Finds the files that have a module's symbols.
//!
//! Other files may have the same path: another version, or that of another machine or container.
//! So a file is only used if it has the module's build ID, or, without one, the checksum of its
//! debug link.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::build_id::BuildId;
use crate::crc;
use crate::debuginfod::Debuginfod;
use crate::elf::ElfFile;
use crate::module::{DebugLink, Module};
use crate::options::Options;

/// Where distributions install debug files.
const SYSTEM: &str = "/usr/lib/debug";

/// The files of a module.
#[derive(Debug, Default)]
pub(crate) struct Located {
    /// The program or library itself.
    pub(crate) binary: Option<ElfFile>,
    /// The file with debug information; `None` if that is the binary, or there is none.
    pub(crate) debug: Option<ElfFile>,
    /// The file that the debug information shares information with.
    pub(crate) alternate: Option<ElfFile>,
    /// What is wrong with files that were not used, or not certain about one that is.
    pub(crate) doubts: Vec<String>,
}

impl Located {
    /// The file with debug information.
    pub(crate) fn dwarf(&self) -> Option<&ElfFile> {
        let files = [&self.debug, &self.binary].into_iter().flatten();
        files.into_iter().find(|elf| elf.has_dwarf())
    }
}

/// Whether a file is the traced one.
enum Match {
    Yes,
    /// Neither has a build ID.
    Unknown,
    /// Why it is not.
    No(String),
}

/// Looks for the files of a module, in order: itself, debug files by build ID, by path and by debug
/// link, and `debuginfod` servers.
pub(crate) fn locate(module: &Module, options: &Options, servers: &mut Debuginfod) -> Located {
    let mut search = Search {
        module,
        options,
        link: module.debug_link().cloned(),
        located: Located::default(),
    };
    search.find_binary();
    if search.located.dwarf().is_none() {
        search.find_debug();
    }
    if search.located.dwarf().is_none()
        && options.debuginfod
        && let Some(id) = module.build_id()
        && let Some(path) = servers.find(id)
    {
        search.try_debug(&path);
    }
    search.find_alternate();
    search.located
}

struct Search<'a> {
    module: &'a Module,
    options: &'a Options,
    /// The debug link in the trace, or else in the binary.
    link: Option<DebugLink>,
    located: Located,
}

impl Search<'_> {
    /// The path of the module, if it is one of a file.
    fn path(&self) -> Option<&Path> {
        Some(self.module.path()).filter(|path| path.is_absolute())
    }

    /// Directories with debug files: the user's, and the system's.
    fn directories(&self) -> impl Iterator<Item = &Path> {
        let own = self.options.debug_dirs.iter().map(PathBuf::as_path);
        own.chain([Path::new(SYSTEM)])
    }

    fn find_binary(&mut self) {
        let Some(path) = self.path().map(Path::to_owned) else {
            return;
        };
        // A directory that the user names has a copy of the file system that the process saw.
        let below = self.options.debug_dirs.iter();
        let mut paths: Vec<_> = below.filter_map(|root| join_below(root, &path)).collect();
        paths.push(path);
        for path in paths {
            let Ok(elf) = ElfFile::open(&path) else {
                continue;
            };
            match self.matches(&elf) {
                Match::Yes => {}
                Match::Unknown => self.located.doubts.push(format!(
                    "{path:?} has no build ID, so nobody can say whether it is still what was traced"
                )),
                Match::No(why) => {
                    self.located.doubts.push(why);
                    continue;
                }
            }
            self.link = self.link.take().or_else(|| elf.debug_link());
            self.located.binary = Some(elf);
            return;
        }
    }

    fn matches(&self, elf: &ElfFile) -> Match {
        let is = |id: Option<&BuildId>| match id {
            Some(id) => format!("build ID {id}"),
            None => "no build ID".to_owned(),
        };
        match (self.module.build_id(), &elf.build_id) {
            (Some(traced), Some(found)) if traced == found => Match::Yes,
            (None, None) => Match::Unknown,
            (traced, found) => Match::No(format!(
                "{:?} is not what was traced: it has {}, and {:?} had {}",
                elf.path,
                is(found.as_ref()),
                self.module.path(),
                is(traced)
            )),
        }
    }

    /// Looks for a separate debug file on this machine.
    fn find_debug(&mut self) {
        let mut paths = Vec::new();
        if let Some(id) = self.module.build_id() {
            paths.extend(self.directories().flat_map(|root| by_build_id(root, id)));
        }
        let own = self.options.debug_dirs.iter().map(PathBuf::as_path);
        if let Some(path) = self.path() {
            for root in own.clone() {
                let below = |root: &Path| join_below(root, path).map(|path| with_suffix(&path));
                paths.extend(below(root));
                paths.extend(below(&root.join("usr/lib/debug")));
                if let Some(name) = path.file_name() {
                    paths.push(root.join(name));
                    paths.push(with_suffix(&root.join(name)));
                }
            }
            paths.extend(join_below(Path::new(SYSTEM), path).map(|path| with_suffix(&path)));
        }
        if let Some(link) = &self.link {
            let name = OsStr::from_bytes(&link.name);
            paths.extend(own.map(|root| root.join(name)));
            if let Some(directory) = self.path().and_then(Path::parent) {
                paths.push(directory.join(name));
                paths.push(directory.join(".debug").join(name));
                let below = self
                    .directories()
                    .filter_map(|root| join_below(root, directory));
                paths.extend(below.map(|directory| directory.join(name)));
            }
        }
        for path in paths {
            if self.try_debug(&path) {
                return;
            }
        }
    }

    /// Uses a file if it has debug information of the module. Returns whether it does.
    fn try_debug(&mut self, path: &Path) -> bool {
        let Ok(elf) = ElfFile::open(path) else {
            return false;
        };
        let doubt = match self.matches(&elf) {
            Match::Yes => None,
            Match::No(why) if self.module.build_id().is_some() => Some(why),
            // Only the checksum says whether it belongs to the module.
            _ => match &self.link {
                Some(link) => self.check_crc(&elf, link),
                None => Some(format!(
                    "{path:?} is not used: {:?} had neither a build ID nor a debug link",
                    self.module.path()
                )),
            },
        };
        if let Some(doubt) = doubt {
            self.located.doubts.push(doubt);
            return false;
        }
        let is_complete = elf.has_dwarf();
        // A symbol table is better than nothing.
        if is_complete || self.located.debug.is_none() {
            self.located.debug = Some(elf);
        }
        is_complete
    }

    /// Says why a file is not the one that a debug link names.
    fn check_crc(&self, elf: &ElfFile, link: &DebugLink) -> Option<String> {
        match crc::of_file(elf.file()) {
            Ok(crc) if crc == link.crc => None,
            Ok(crc) => Some(format!(
                "{:?} is not the debug file of {:?}: its checksum is {crc:08x}, not {:08x}",
                elf.path,
                self.module.path(),
                link.crc
            )),
            Err(error) => Some(format!("cannot read {:?}: {error}", elf.path)),
        }
    }

    fn find_alternate(&mut self) {
        let Some(elf) = self.located.dwarf() else {
            return;
        };
        let Some(link) = elf.alt_link() else {
            return;
        };
        let path = Path::new(OsStr::from_bytes(&link.path));
        // Relative to the file itself, not to a link to it.
        let own = elf.path.canonicalize().unwrap_or_else(|_| elf.path.clone());
        let mut paths = Vec::new();
        paths.extend(own.parent().map(|directory| directory.join(path)));
        paths.extend(
            self.options
                .debug_dirs
                .iter()
                .filter_map(|root| join_below(root, path)),
        );
        paths.extend(
            self.directories()
                .flat_map(|root| by_build_id(root, &link.build_id)),
        );
        let files = paths.iter().filter_map(|path| ElfFile::open(path).ok());
        let mut files = files.filter(|file| file.build_id.as_ref() == Some(&link.build_id));
        let found = files.next();
        if found.is_none() {
            let own = &elf.path;
            self.located.doubts.push(format!(
                "some names are missing in {own:?}: they are in {path:?} (build ID {}), which is not here",
                link.build_id
            ));
        }
        self.located.alternate = found;
    }
}

/// Paths of a debug file below a directory, by its build ID.
fn by_build_id(root: &Path, id: &BuildId) -> Vec<PathBuf> {
    let id = id.to_string();
    let Some((first, rest)) = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else {
        return Vec::new();
    };
    let name = format!("{first}/{rest}.debug");
    let below = [".build-id", "", "usr/lib/debug/.build-id"];
    below
        .iter()
        .map(|below| root.join(below).join(&name))
        .collect()
}

/// A path of another file system, below the directory where that is. None if it leads elsewhere.
fn join_below(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut joined = root.to_owned();
    for component in path.components() {
        match component {
            Component::Normal(name) => joined.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(joined)
}

fn with_suffix(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".debug");
    path.into()
}
