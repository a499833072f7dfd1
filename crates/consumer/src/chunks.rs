//! Chunks: the parts of a recording with rotation. Each is a directory with complete traces.
//!
//! | directory in that of the recording | |
//! |---|---|
//! | `20261122T150347Z-000001` | a finished chunk: users may move, read and remove it |
//! | `20261122T160347Z-000002.current` | the current chunk |
//!
//! A name contains the start time of the chunk, so names sort by time. It also contains a number,
//! which is unique in that directory. Empty chunks are not created.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) use usertrace_ctf::recording::CURRENT;
use usertrace_ctf::recording::{Chunk, DIRECTORY};

/// Prefix of chunks that are being removed, in the checkpoint's directory.
const REMOVED: &str = "removed-";

/// When a chunk ends, and which chunks are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Size in bytes at which a chunk ends.
    pub rotate_size: Option<u64>,
    /// Age at which a chunk ends.
    pub rotate_time: Option<Duration>,
    /// Number of finished chunks to keep, the newest ones.
    pub keep: Option<usize>,
    /// Maximum size in bytes of all chunks together. If exceeded, the oldest chunks are removed; a
    /// recording without chunks ends.
    pub max_size: Option<u64>,
}

/// A chunk ends at this fraction of the maximum size at the latest, so that there are old chunks to
/// remove.
const PARTS: u64 = 4;

impl Limits {
    /// Whether the recording has chunks.
    #[must_use]
    pub fn rotates(&self) -> bool {
        self.rotate_size.is_some() || self.rotate_time.is_some()
    }

    /// Size in bytes at which a chunk ends.
    pub(super) fn chunk_size(&self) -> Option<u64> {
        let part = self.max_size.map(|size| size / PARTS);
        self.rotate_size.into_iter().chain(part).min()
    }
}

/// The finished chunks in a directory, oldest first.
///
/// # Errors
/// If the directory cannot be read.
pub fn finished_chunks(output: &Path) -> io::Result<Vec<PathBuf>> {
    let chunks = chunks(output)?.into_iter();
    let finished = chunks.filter(|(_, _, is_current)| !is_current);
    Ok(finished.map(|(_, name, _)| output.join(name)).collect())
}

/// The number of the last chunk in a directory, or 0.
pub(super) fn last_number(output: &Path) -> io::Result<u64> {
    let last = chunks(output)?.last().map(|(number, _, _)| *number);
    Ok(last.unwrap_or(0))
}

/// Finishes all unfinished chunks but the current one, which has this number.
pub(super) fn finish_others(output: &Path, number: u64) -> io::Result<()> {
    for (of, name, is_current) in chunks(output)? {
        if is_current && of != number {
            finish(output, &name)?;
        }
    }
    Ok(())
}

/// Finishes the chunk whose unfinished directory is named `name`, and returns its final path.
/// Returns `None` for an empty chunk.
fn finish(output: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    let path = output.join(name);
    match fs::remove_dir(&path) {
        Ok(()) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // It is not empty.
        Err(_) => {}
    }
    let finished = output.join(name.strip_suffix(CURRENT).unwrap_or(name));
    fs::rename(path, &finished)?;
    Ok(Some(finished))
}

/// Finishes a chunk, like [`finish`].
pub(super) fn finish_chunk(output: &Path, chunk: &Chunk) -> io::Result<Option<PathBuf>> {
    finish(output, &chunk.current())
}

/// Number, name, and whether it is current, of all chunks in a directory, by number.
pub(super) fn chunks(output: &Path) -> io::Result<Vec<(u64, String, bool)>> {
    let mut chunks = Vec::new();
    for entry in fs::read_dir(output)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        let current = name.strip_suffix(CURRENT);
        if let Some(number) = Chunk::number_of(current.unwrap_or(&name)) {
            chunks.push((number, name.clone(), current.is_some()));
        }
    }
    chunks.sort();
    Ok(chunks)
}

/// Removes a finished chunk. It is first moved to the checkpoint's directory, so that readers of
/// the recording never see a part of it.
pub(super) fn remove_chunk(output: &Path, chunk: &Path) -> io::Result<()> {
    let name = chunk.file_name().unwrap_or_default().to_string_lossy();
    let removed = output.join(DIRECTORY).join(format!("{REMOVED}{name}"));
    match fs::rename(chunk, &removed) {
        // Somebody else removed it.
        Err(_) if !chunk.exists() => return Ok(()),
        renamed => renamed?,
    }
    fs::remove_dir_all(removed)
}

/// Completes removals that a killed recorder had started.
pub(super) fn finish_removals(checkpoint: &Path) -> io::Result<()> {
    for entry in fs::read_dir(checkpoint)? {
        let entry = entry?;
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(REMOVED.as_bytes())
        {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Size in bytes of all files below a directory without the checkpoint; 0 if the directory does not
/// exist. Files that disappear meanwhile do not count.
pub(super) fn size(directory: &Path) -> io::Result<u64> {
    let (mut bytes, mut todo) = (0, vec![directory.to_owned()]);
    while let Some(directory) = todo.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(_) if entry.file_name() == DIRECTORY => {}
                Ok(file) if file.is_dir() => todo.push(entry.path()),
                Ok(file) => bytes += file.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn chunks_are_finished_and_removed_and_numbers_stay_unique() {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path();
        fs::create_dir(output.join(DIRECTORY)).unwrap();
        fs::write(output.join(DIRECTORY).join("trace"), "12345").unwrap();
        assert_eq!(last_number(output).unwrap(), 0);
        let chunks: Vec<_> = (0..3)
            .map(|n| Chunk::after(n, SystemTime::UNIX_EPOCH))
            .collect();
        for chunk in &chunks {
            let process = output.join(chunk.current()).join("prog-1-1");
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("metadata"), "1234").unwrap();
        }
        assert_eq!(size(output).unwrap(), 12);
        finish_others(output, 3).unwrap();
        let names = |chunks: &[Chunk]| -> Vec<_> {
            chunks
                .iter()
                .map(|chunk| output.join(chunk.name()))
                .collect()
        };
        assert_eq!(finished_chunks(output).unwrap(), names(&chunks[..2]));
        assert_eq!(last_number(output).unwrap(), 3);
        remove_chunk(output, &output.join(chunks[0].name())).unwrap();
        remove_chunk(output, &output.join(chunks[0].name())).unwrap();
        assert_eq!(finished_chunks(output).unwrap(), names(&chunks[1..2]));
        assert_eq!(size(output).unwrap(), 8);
        let finished = finish_chunk(output, &chunks[2]).unwrap();
        assert_eq!(finished, Some(output.join(chunks[2].name())));
        // Empty chunks do not count.
        fs::create_dir(output.join(Chunk::after(3, SystemTime::UNIX_EPOCH).current())).unwrap();
        finish_others(output, 0).unwrap();
        assert_eq!(last_number(output).unwrap(), 3);
    }

    #[test]
    fn chunk_size_leaves_room_for_old_chunks() {
        let limits = |rotate_size, max_size| Limits {
            rotate_size,
            max_size,
            ..Limits::default()
        };
        assert_eq!(limits(None, None).chunk_size(), None);
        assert_eq!(limits(Some(10), None).chunk_size(), Some(10));
        assert_eq!(limits(Some(10), Some(100)).chunk_size(), Some(10));
        assert_eq!(limits(None, Some(100)).chunk_size(), Some(25));
        assert!(!limits(None, Some(100)).rotates());
    }
}
