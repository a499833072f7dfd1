//! The files beside the traces of a recording, by which recorders, daemons and readers find each
//! other.

mod chunk;
mod confirmation;
mod daemons;
mod location;
mod log;
mod note;
mod summary;

use std::path::{Path, PathBuf};

pub use chunk::{CURRENT, Chunk, DIRECTORY, value};
pub use confirmation::{Confirmation, is_confirmed, remove_confirmations, want_confirmations};
pub use daemons::{DAEMON, WRITE_NOW};
pub use location::{TraceLocation, is_sent};
pub use log::{LOG, append_to_log, read_log};
pub use note::{CHUNK, RecordingNote, TRACE, read_note};
pub use summary::{Failures, add_failure, add_summary, parse_summary};

/// A recorder creates this file beside the traces. Daemons lock it, so that the recorder can wait
/// until they have written everything.
pub const RUNNING: &str = ".running";
/// Name of the note beside the traces of a recording that says where it is on a relay. Its sender
/// has the lock of the file.
pub const RELAY_NOTE: &str = ".relay";

/// Whether `usertrace record` records to this directory, or was killed while it did.
#[must_use]
pub fn is_recorded(directory: &Path) -> bool {
    // An unreadable note does not count.
    matches!(RecordingNote::of(directory), Ok(Some(_))) || directory.join(RUNNING).exists()
}

/// The path of a file when its chunk is finished.
#[must_use]
pub fn finished(path: &Path) -> PathBuf {
    let name = |part: &std::ffi::OsStr| {
        let name = part.to_str()?.strip_suffix(CURRENT)?;
        Chunk::number_of(name).map(|_| name.into())
    };
    path.iter()
        .map(|part| name(part).unwrap_or_else(|| part.to_owned()))
        .collect()
}

/// The path of a file in a recording without chunks.
#[must_use]
pub fn without_chunk(path: &Path) -> PathBuf {
    let is_chunk = |part: &std::ffi::OsStr| {
        let name = part.to_str().unwrap_or_default();
        Chunk::number_of(name.strip_suffix(CURRENT).unwrap_or(name)).is_some()
    };
    path.iter().filter(|part| !is_chunk(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_chunks_are_known_when_these_are_finished() {
        let name = "20261122T150347Z-000001";
        let current = format!("/x.current/{name}.current/prog-1-1/main_0");
        let path = format!("/x.current/{name}/prog-1-1/main_0");
        assert_eq!(finished(Path::new(&current)), Path::new(&path));
        for other in [&path[..], "a.current", "./.", "/"] {
            assert_eq!(finished(Path::new(other)), Path::new(other));
        }
        for path in [&current[..], &path] {
            assert_eq!(
                without_chunk(Path::new(path)),
                Path::new("/x.current/prog-1-1/main_0")
            );
        }
    }
}
