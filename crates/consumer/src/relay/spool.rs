//! What waits for the relay: the chunks of a recording, their traces, and the files of these.

use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use usertrace_ctf::METADATA;
use usertrace_ctf::recording::{DIRECTORY, RUNNING};
use usertrace_ctf::unfinished::{self, State};
use usertrace_os::files;

use crate::chunks;

/// How often chunks are listed again because one of them was renamed.
const SCANS: u32 = 100;

/// A chunk of the recording, or all of a recording without chunks.
#[derive(Debug)]
pub(super) struct SpoolChunk {
    /// 0: the recording has no chunks.
    pub(super) number: u64,
    /// Its name when it is finished; empty without chunks.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Nothing more will be written to it.
    pub(super) is_finished: bool,
    pub(super) traces: Vec<SpoolTrace>,
}

impl SpoolChunk {
    /// The path of a trace below the session's directory.
    pub(super) fn path_of(&self, trace: &SpoolTrace) -> String {
        match &self.name[..] {
            "" => trace.name.clone(),
            chunk => format!("{chunk}/{}", trace.name),
        }
    }
}

/// A trace in a chunk.
#[derive(Debug)]
pub(super) struct SpoolTrace {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// It has the mark of an unfinished trace.
    pub(super) is_marked: bool,
    /// All events up to this time of `CLOCK_MONOTONIC` are in the files, as far as the mark says.
    pub(super) written: Option<u64>,
    /// Names and lengths of its streams.
    pub(super) streams: Vec<(String, u64)>,
    pub(super) metadata: Option<FileVersion>,
}

impl SpoolTrace {
    /// Whether one of its streams is not empty.
    pub(super) fn has_packets(&self) -> bool {
        self.streams.iter().any(|(_, len)| *len > 0)
    }
}

/// Tells versions of a file apart without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl FileVersion {
    fn of(file: &fs::Metadata) -> Self {
        Self {
            inode: file.ino(),
            len: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
        }
    }
}

/// Lists the chunks in a directory, the oldest first. `has_recorder`: a recorder of this process
/// makes and finishes chunks there; otherwise, a directory without chunks is listed as one.
/// `is_over`: without a recorder, chunks are finished whatever their names are.
///
/// # Errors
/// If the directory cannot be read.
pub(super) fn scan(
    output: &Path,
    has_recorder: bool,
    is_over: bool,
) -> io::Result<Vec<SpoolChunk>> {
    for _ in 0..SCANS {
        let listed = chunks::chunks(output)?;
        if let Some(found) = scan_listed(output, listed, has_recorder, is_over)? {
            return Ok(found);
        }
    }
    let why = "its chunks change all the time";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
}

/// Scans chunks that were listed. None if one of them was renamed meanwhile: some of its traces may
/// not be found.
fn scan_listed(
    output: &Path,
    listed: Vec<(u64, String, bool)>,
    has_recorder: bool,
    is_over: bool,
) -> io::Result<Option<Vec<SpoolChunk>>> {
    let is_over = is_over && !has_recorder;
    let mut found = Vec::new();
    for (number, name, is_current) in listed {
        let path = output.join(&name);
        // A link may lead to anything that this user can read.
        if fs::symlink_metadata(&path).is_ok_and(|of| of.is_symlink()) {
            continue;
        }
        let finished = name.strip_suffix(chunks::CURRENT).unwrap_or(&name);
        let traces = traces(&path)?;
        if !path.exists() {
            return Ok(None);
        }
        found.push(SpoolChunk {
            number,
            name: finished.to_owned(),
            is_finished: !is_current || is_over && !traces.iter().any(is_written),
            path,
            traces,
        });
    }
    if !has_recorder && found.is_empty() {
        let traces = traces(output)?;
        found.push(SpoolChunk {
            number: 0,
            name: String::new(),
            path: output.to_owned(),
            is_finished: is_over && !traces.iter().any(is_written),
            traces,
        });
    }
    Ok(Some(found))
}

/// Whether a directory has something to send.
///
/// # Errors
/// If it cannot be read.
pub(super) fn has_traces(output: &Path) -> io::Result<bool> {
    let chunks = scan(output, false, false)?;
    let mut traces = chunks.iter().flat_map(|chunk| &chunk.traces);
    Ok(traces.any(|trace| trace.metadata.is_some()))
}

/// Whether a recorder, or daemons for it, may still write to a recording.
pub(super) fn is_recorded(output: &Path) -> bool {
    let is_locked = |file: io::Result<File>| {
        let locked = file.and_then(|file| files::is_flocked(&file));
        locked.unwrap_or(false)
    };
    // Daemons share the one lock while they run. A recorder of the kernel's rings has the other.
    is_locked(files::open_in(output, RUNNING))
        || is_locked(files::open_directory(&output.join(DIRECTORY)))
}

/// Whether a daemon still writes to the trace.
pub(super) fn is_written(trace: &SpoolTrace) -> bool {
    trace.is_marked
        && matches!(
            unfinished::state(&trace.path),
            State::Running | State::Ending
        )
}

/// The traces in a directory. None if it is gone.
fn traces(directory: &Path) -> io::Result<Vec<SpoolTrace>> {
    let mut traces = Vec::new();
    for entry in entries(directory)? {
        let is_directory = entry.file_type().is_ok_and(|of| of.is_dir());
        if let (true, Some(name)) = (is_directory, visible_name(&entry)) {
            traces.push(trace(name, entry.path())?);
        }
    }
    traces.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(traces)
}

fn trace(name: String, path: PathBuf) -> io::Result<SpoolTrace> {
    let mut trace = SpoolTrace {
        name,
        // Before the lengths: what the mark confirms is below these.
        written: unfinished::written(&path),
        is_marked: path.join(unfinished::NAME).exists(),
        streams: Vec::new(),
        metadata: None,
        path,
    };
    for entry in entries(&trace.path)? {
        // The type of the entry itself: links lead elsewhere.
        let file = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        match visible_name(&entry) {
            Some(name) if file.is_file() && name == METADATA => {
                trace.metadata = Some(FileVersion::of(&file));
            }
            Some(name) if file.is_file() => trace.streams.push((name, file.len())),
            _ => {}
        }
    }
    trace.streams.sort();
    Ok(trace)
}

/// The entries of a directory; none if it is gone.
fn entries(directory: &Path) -> io::Result<Vec<DirEntry>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The name of an entry that is not hidden and can be sent.
fn visible_name(entry: &DirEntry) -> Option<String> {
    let name = entry.file_name().into_string().ok()?;
    (!name.starts_with('.') && !name.contains(char::is_control)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_and_their_files_are_found() {
        let output = tempfile::tempdir().unwrap();
        let output = output.path();
        for (chunk, len) in [
            ("20261122T150347Z-000001", 3),
            ("20261122T150347Z-000002.current", 5),
        ] {
            let trace = output.join(chunk).join("prog-1-1");
            fs::create_dir_all(&trace).unwrap();
            fs::write(trace.join("metadata"), "m").unwrap();
            fs::write(trace.join("main_0"), vec![0; len]).unwrap();
            fs::write(trace.join(".metadata.new"), "").unwrap();
            std::os::unix::fs::symlink("/etc/passwd", trace.join("link")).unwrap();
        }
        let found = scan(output, true, true).unwrap();
        let [first, second] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((first.number, second.number), (1, 2));
        assert_eq!(second.name, "20261122T150347Z-000002");
        assert_eq!((first.is_finished, second.is_finished), (true, false));
        assert_eq!(second.traces[0].streams, [("main_0".to_owned(), 5)]);
        assert!(second.traces[0].metadata.is_some());
        // Nobody records there.
        assert!(scan(output, false, true).unwrap()[1].is_finished);
        let plain = scan(&output.join("20261122T150347Z-000001"), false, true).unwrap();
        assert_eq!((plain[0].number, plain[0].traces.len()), (0, 1));
        assert!(has_traces(output).unwrap());
    }

    /// A chunk that is renamed after it was listed is looked for again, with its traces.
    #[test]
    fn renamed_chunk_is_found_with_its_traces() {
        let output = tempfile::tempdir().unwrap();
        let output = output.path();
        let name = "20261122T150347Z-000001";
        let current = output.join(format!("{name}{}", chunks::CURRENT));
        fs::create_dir_all(current.join("prog-1-1")).unwrap();
        let listed = chunks::chunks(output).unwrap();
        fs::rename(current, output.join(name)).unwrap();
        assert!(scan_listed(output, listed, true, false).unwrap().is_none());
        let found = scan(output, true, false).unwrap();
        assert_eq!((found.len(), found[0].traces.len()), (1, 1));
    }

    #[test]
    fn links_are_not_followed() {
        let (elsewhere, output) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let trace = elsewhere.path().join("prog-1-1");
        fs::create_dir(&trace).unwrap();
        fs::write(trace.join("metadata"), "m").unwrap();
        let link = |to: &Path, name: &str| {
            let from = output.path().join(name);
            std::os::unix::fs::symlink(to, from).unwrap();
        };
        link(elsewhere.path(), "20261122T150347Z-000001");
        link(&trace, "prog-1-1");
        assert!(!has_traces(output.path()).unwrap());
    }
}
