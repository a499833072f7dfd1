//! Chunks: the parts of a recording that rotates, each a directory with complete traces.
//!
//! | directory below that of the recording | |
//! |---|---|
//! | `20261122T150347Z-000001` | a chunk that is finished: it may be moved, read, and removed |
//! | `20261122T160347Z-000002.current` | the one that is written |
//!
//! A name has the time at which the chunk was begun, and its number, which is never used again in
//! that directory; so names sort by time. A chunk in which there is nothing is not made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use usertrace_ctf::recording::{CURRENT, Chunk, DIRECTORY};

/// What chunks are called while they are removed, in the directory of the notes.
const REMOVED: &str = "removed-";

/// When a chunk ends, and which are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// A chunk ends when it has so many bytes.
    pub rotate_size: Option<u64>,
    /// A chunk ends when it is so old.
    pub rotate_time: Option<Duration>,
    /// So many finished chunks are kept, the newest.
    pub keep: Option<usize>,
    /// Bytes that all may have together. Where chunks are made, the oldest go; else the recording
    /// ends.
    pub max_size: Option<u64>,
}

/// Chunks end at the latest when they have this part of the bytes that all may have, so that the
/// oldest can go.
const PARTS: u64 = 4;

impl Limits {
    /// Are chunks made?
    #[must_use]
    pub fn rotates(&self) -> bool {
        self.rotate_size.is_some() || self.rotate_time.is_some()
    }

    /// Bytes at which a chunk ends.
    pub(super) fn chunk_size(&self) -> Option<u64> {
        let part = self.max_size.map(|size| size / PARTS);
        self.rotate_size.into_iter().chain(part).min()
    }
}

/// The finished chunks in a directory, the oldest first.
///
/// # Errors
/// When it cannot be read.
pub fn finished_chunks(output: &Path) -> io::Result<Vec<PathBuf>> {
    let chunks = chunks(output)?.into_iter();
    let finished = chunks.filter(|(_, _, is_current)| !is_current);
    Ok(finished.map(|(_, name, _)| output.join(name)).collect())
}

/// The number of the last chunk in a directory; 0: there is none.
pub(super) fn last_number(output: &Path) -> io::Result<u64> {
    let last = chunks(output)?.last().map(|(number, _, _)| *number);
    Ok(last.unwrap_or(0))
}

/// Finishes chunks that are no longer written, all but that of this number.
pub(super) fn finish_others(output: &Path, number: u64) -> io::Result<()> {
    for (of, name, is_current) in chunks(output)? {
        if is_current && of != number {
            finish(output, &name)?;
        }
    }
    Ok(())
}

/// Finishes the chunk whose directory is called `name` as long as it is written. None: there is
/// nothing in it.
fn finish(output: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    let path = output.join(name);
    match fs::remove_dir(&path) {
        Ok(()) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // There is something in it.
        Err(_) => {}
    }
    let finished = output.join(name.strip_suffix(CURRENT).unwrap_or(name));
    fs::rename(path, &finished)?;
    Ok(Some(finished))
}

/// Likewise.
pub(super) fn finish_chunk(output: &Path, chunk: &Chunk) -> io::Result<Option<PathBuf>> {
    finish(output, &chunk.current())
}

/// Number, name, and whether it is written, of all chunks in a directory, by number.
fn chunks(output: &Path) -> io::Result<Vec<(u64, String, bool)>> {
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

/// Removes a finished chunk, by the directory of the notes: nobody who reads that of the recording
/// sees a part of it.
pub(super) fn remove_chunk(output: &Path, chunk: &Path) -> io::Result<()> {
    let name = chunk.file_name().unwrap_or_default().to_string_lossy();
    let removed = output.join(DIRECTORY).join(format!("{REMOVED}{name}"));
    match fs::rename(chunk, &removed) {
        // Others took it away.
        Err(_) if !chunk.exists() => return Ok(()),
        renamed => renamed?,
    }
    fs::remove_dir_all(removed)
}

/// Removes what a recorder that was killed did not come to remove.
pub(super) fn remove_rest(notes: &Path) -> io::Result<()> {
    for entry in fs::read_dir(notes)? {
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

/// Bytes of all files below a directory, but for notes; 0 if it is not there. Files that go
/// meanwhile do not count.
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
    fn chunks_are_finished_and_removed_and_numbers_not_used_again() {
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
        // One without anything is none.
        fs::create_dir(output.join(Chunk::after(3, SystemTime::UNIX_EPOCH).current())).unwrap();
        finish_others(output, 0).unwrap();
        assert_eq!(last_number(output).unwrap(), 3);
    }

    #[test]
    fn a_chunk_ends_before_all_together_are_too_large() {
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
