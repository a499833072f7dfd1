//! Objects that processes load: programs and shared libraries.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use usertrace_sys::printable;

use crate::build_id::BuildId;

/// Maximum number of characters of a name. Those of files have at most 255 bytes, but a trace may
/// say anything.
const MAX_NAME: usize = 255;

/// An object, wherever and in however many processes it is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    pub(crate) number: u32,
    pub(crate) identity: Identity,
}

/// What distinguishes one object from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) path: Box<[u8]>,
    pub(crate) build_id: Option<BuildId>,
    pub(crate) debug_link: Option<DebugLink>,
}

/// Names the separate debug file of an object that has no build ID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DebugLink {
    /// Name of the file, without a directory.
    pub name: Box<[u8]>,
    /// Checksum of the file: CRC-32.
    pub crc: u32,
}

impl Module {
    /// A module that no trace describes. Its number has to differ from those of all others that are
    /// resolved by the same [`Symbols`](crate::Symbols).
    #[must_use]
    pub fn new(
        number: u32,
        path: &Path,
        build_id: Option<BuildId>,
        debug_link: Option<DebugLink>,
    ) -> Self {
        let identity = Identity {
            path: path.as_os_str().as_bytes().into(),
            build_id,
            debug_link,
        };
        Self { number, identity }
    }

    /// Its number among all modules of one [`Modules`](crate::Modules), from 0 on.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its path, as the process saw it. In a container, that is a path of the container.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.identity.path))
    }

    /// Its build ID, if it has one.
    #[must_use]
    pub fn build_id(&self) -> Option<&BuildId> {
        self.identity.build_id.as_ref()
    }

    /// Its debug link, if the trace has it.
    #[must_use]
    pub fn debug_link(&self) -> Option<&DebugLink> {
        self.identity.debug_link.as_ref()
    }

    /// The last part of its path, printable. If it is longer than names of files are, its
    /// beginning.
    #[must_use]
    pub fn name(&self) -> String {
        let path = self.path();
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy();
        let end = name.char_indices().nth(MAX_NAME).map(|(end, _)| end);
        match end {
            Some(end) => format!("{}…", printable(&name[..end])),
            None => printable(&name),
        }
    }
}
