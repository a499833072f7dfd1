//! The note beside a recording that says where it is on the relay.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use usertrace_ctf::recording::{Chunk, RELAY_NOTE as NAME, read_note, value};
use usertrace_ctf::{file_name, new_uuid};
use usertrace_os::{files, procfs};

/// A note that is being written. The note is not in the recorder's directory, which is removed when
/// everything is written, before everything is sent.
const NEW: &str = ".relay.new";
/// Longest name in a path of the relay. Its limits are 255 bytes, with the NUL.
const MAX_NAME: usize = 100;

/// Where a recording is on the relay. It stays the same when a recorder was killed: a session with
/// the same path replaces what an earlier one left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelayNote {
    /// Name of the trace.
    pub(super) name: String,
    pub(super) host: String,
    /// The directory below that of the host.
    pub(super) path: String,
    /// Start of the recording, in seconds since 1970.
    pub(super) created: u64,
}

impl RelayNote {
    /// Reads the note of a recording, or writes it. The file that is returned has its lock: two
    /// senders would replace each other's files on the relay.
    ///
    /// # Errors
    /// If another process has the lock, or the note is damaged or cannot be written.
    pub(super) fn of(output: &Path, trace: &str) -> io::Result<(Self, File)> {
        if read_note(&output.join(NAME), Self::from_text)?.is_none() {
            let new = output.join(NEW);
            remove_file(&new)?;
            // Only what this creates: somebody else may have put a link there.
            let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
            file.write_all(Self::new(trace)?.to_text().as_bytes())?;
            fs::rename(new, output.join(NAME))?;
        }
        let options = &mut OpenOptions::new();
        let lock = files::open_to_write(options.read(true).write(true), &output.join(NAME))?;
        files::lock(&lock).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another process sends it")
            }
            _ => error,
        })?;
        let note = read_note(&output.join(NAME), Self::from_text)?;
        let gone = || io::Error::new(io::ErrorKind::NotFound, "another process has sent it");
        Ok((note.ok_or_else(gone)?, lock))
    }

    /// Whether a recording is not yet completely on a relay.
    pub(super) fn is_there(output: &Path) -> bool {
        output.join(NAME).exists()
    }

    /// Removes the note of a recording that is completely on the relay.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(output: &Path) -> io::Result<()> {
        remove_file(&output.join(NAME))
    }

    fn new(trace: &str) -> io::Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let created = since.map_or(0, |since| since.as_secs());
        let short = |name: &str| file_name(name).chars().take(MAX_NAME).collect::<String>();
        let name = short(trace);
        let chunk = Chunk {
            number: 1,
            begin: created,
        };
        let chunk = chunk.name();
        let time = chunk.split('-').next().unwrap_or_default();
        // Two recordings of a name may begin in the same second, and must not replace each other.
        let [a, b, ..] = new_uuid()?;
        Ok(Self {
            host: short(&procfs::hostname().unwrap_or_default()),
            path: format!("{name}-{time}-{a:02x}{b:02x}"),
            name,
            created,
        })
    }

    fn to_text(&self) -> String {
        format!(
            "name {}\nhost {}\npath {}\ncreated {}\n",
            self.name, self.host, self.path, self.created
        )
    }

    /// Parses a note. None if it is damaged, or would lead out of the host's directory.
    fn from_text(text: &str) -> Option<Self> {
        let name = |key| {
            let name = value(text, key)?;
            (!name.is_empty() && file_name(name) == name).then(|| name.to_owned())
        };
        Some(Self {
            name: name("name")?,
            host: name("host")?,
            path: name("path")?,
            created: value(text, "created")?.parse().ok()?,
        })
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_keeps_its_place_on_the_relay() {
        let output = tempfile::tempdir().unwrap();
        let (note, lock) = RelayNote::of(output.path(), "my web/../x").unwrap();
        let busy = RelayNote::of(output.path(), "other").unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        drop(lock);
        assert_eq!(note.name, "my_web_.._x");
        assert!(note.path.starts_with("my_web_.._x-20"), "{}", note.path);
        assert_eq!(RelayNote::of(output.path(), "other").unwrap().0, note);
        RelayNote::remove(output.path()).unwrap();
        RelayNote::remove(output.path()).unwrap();
        let (other, _lock) = RelayNote::of(output.path(), "other").unwrap();
        assert_ne!(other.path, note.path);
    }

    #[test]
    fn forged_note_does_not_lead_elsewhere() {
        for path in ["../x", "/etc", "a b", "", ".x"] {
            let text = format!("name a\nhost b\npath {path}\ncreated 1\n");
            assert_eq!(RelayNote::from_text(&text), None, "{path}");
        }
    }
}
