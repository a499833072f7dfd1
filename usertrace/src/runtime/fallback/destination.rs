//! Destination of the fallback's traces.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use usertrace_ctf::Version;
use usertrace_ctf::recording::append_to_log;

/// Destination of traces: below a directory, or nowhere.
///
/// All copies of this crate in a process read it, so its layout must not depend on the compiler.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Output {
    /// Path of the directory, which is never freed; NULL: traces go nowhere (D8).
    path: *const u8,
    path_len: usize,
    is_ctf_2: bool,
}

// SAFETY: the path is never freed, and never changes.
unsafe impl Send for Output {}
// SAFETY: likewise.
unsafe impl Sync for Output {}

impl Output {
    /// Traces that go nowhere.
    pub(super) const NULL: Self = Self {
        path: std::ptr::null(),
        path_len: 0,
        is_ctf_2: false,
    };

    /// Traces below `directory`, in this version of CTF.
    pub(super) fn below(directory: PathBuf, version: Version) -> Self {
        let path: &'static [u8] = directory.into_os_string().into_vec().leak();
        Self {
            path: path.as_ptr(),
            path_len: path.len(),
            is_ctf_2: version == Version::V2,
        }
    }

    /// The directory below which traces are; nothing if they go nowhere.
    pub(super) fn directory(&self) -> Option<&'static Path> {
        if self.path.is_null() {
            return None;
        }
        // SAFETY: `below` leaked `path_len` bytes there.
        let path = unsafe { std::slice::from_raw_parts(self.path, self.path_len) };
        Some(Path::new(OsStr::from_bytes(path)))
    }

    /// The version of CTF.
    pub(super) fn version(&self) -> Version {
        if self.is_ctf_2 {
            Version::V2
        } else {
            Version::V1_8
        }
    }

    /// Appends a line to the log beside the traces.
    pub(super) fn log(&self, text: &str) {
        let Some(directory) = self.directory() else {
            return;
        };
        // There is no other way to report that this failed.
        let _ = append_to_log(directory, &["usertrace-fast", text]);
    }
}
