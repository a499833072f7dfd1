//! The checkpoint of a recording: from where a recorder resumes after the previous one was killed.
//!
//! The files are in `.usertrace`, below the directory of the traces. That directory exists until
//! the recording is complete.
//!
//! | file | |
//! |---|---|
//! | `trace` | the recorded trace ([`RecordingNote`]); the recorder holds the lock of the directory |
//! | `chunk` | the current chunk, if there are chunks ([`chunks`](super::chunks)) |
//! | `PID.NUMBER.trace` | where the trace of that process is ([`TraceStart`]); written before that trace |
//! | `PID.NUMBER.descriptions` | what the trace declares: events, and contexts of channels, each a line; written before an event |
//! | `PID.NUMBER.rings` | for each ring, the read position, and the state of its stream file at that position ([`RingCheckpoint`]) |
//!
//! A recorder first writes events, then the checkpoint, then consumes them in the ring. So consumed
//! events are always in the files. Bytes in the files beyond the checkpoint are cut off, and the
//! events are read again.
//!
//! A chunk ends in this order:
//!
//! 1. The recorder completes the traces for everything that it has read, and updates the
//!    checkpoint.
//! 2. It writes the next chunk to `chunk`.
//! 3. It renames the old directory to its final name.
//!
//! From then on nothing is written to the old chunk, whatever the checkpoint of a process says. A
//! process enters the next chunk with its first new data, by a new [`TraceStart`], which replaces
//! the file as a whole. Stream states in older ring checkpoints belong to the previous chunk and
//! are ignored; the positions stay valid.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use usertrace_ctf::recording::{CHUNK, Chunk, DIRECTORY, RecordingNote, TRACE, read_note, value};
use usertrace_ctf::{RingCounts, RingState, mend};
use usertrace_os::files;
use usertrace_ring::MAX_RINGS;
use usertrace_ring::schema::Description;
use usertrace_sys::uapi::LTT_MAX_CHANNELS;

use super::chunks;

/// Whether the directory `output` contains nothing but a checkpoint.
pub(super) fn is_empty(output: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(output)? {
        if entry?.file_name() != DIRECTORY {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the checkpoint if no trace belongs to it.
pub(super) fn remove_if_unused(output: &Path) {
    // The caller reports an earlier error; a failure here would hide it.
    if is_empty(output).is_ok_and(|empty| empty) {
        let _ = fs::remove_dir_all(output.join(DIRECTORY));
    }
}

/// The checkpoint of a recording.
#[derive(Debug)]
pub(super) struct Checkpoint {
    output: PathBuf,
    directory: PathBuf,
    /// The current chunk; `None` for a recording without chunks.
    chunk: Option<Chunk>,
    _lock: Flock<File>,
}

impl Checkpoint {
    /// Starts or resumes recording of the trace `of` to the directory `output`, optionally in
    /// chunks.
    pub(super) fn open(output: &Path, of: &RecordingNote, in_chunks: bool) -> io::Result<Self> {
        let directory = output.join(DIRECTORY);
        let lock = lock(create(output)?)?;
        let before = RecordingNote::of(output)?;
        if before.is_none() {
            // A previous removal was interrupted: without `trace`, these files mean nothing.
            for entry in fs::read_dir(&directory)? {
                let path = entry?.path();
                if path.is_dir() {
                    fs::remove_dir_all(path)?;
                } else {
                    fs::remove_file(path)?;
                }
            }
            if in_chunks {
                let chunk = Chunk::after(chunks::last_number(output)?, SystemTime::now());
                write_whole(&directory.join(CHUNK), &chunk.to_text())?;
            }
            write_whole(&directory.join(TRACE), &of.to_text())?;
        }
        let checkpoint = Self::of(output, lock)?;
        if in_chunks && checkpoint.chunk.is_none() {
            let error = "a recording without chunks, which cannot get any, was begun there";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, error));
        }
        if let Some(before) = before {
            checkpoint.repair()?;
            if !before.is_same(of) {
                // The repair above made the old recording readable.
                let name = before.name;
                let error = format!(
                    "there is what was recorded of another trace {name}, or of one that is gone"
                );
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, error));
            }
        }
        Ok(checkpoint)
    }

    /// Loads the checkpoint of a recording that exists.
    fn of(output: &Path, lock: Flock<File>) -> io::Result<Self> {
        let directory = output.join(DIRECTORY);
        Ok(Self {
            output: output.to_owned(),
            chunk: read_note(&directory.join(CHUNK), Chunk::from_text)?,
            directory,
            _lock: lock,
        })
    }

    /// Completes the recording of a killed recorder whose trace no longer exists. Does nothing if
    /// there is no recording.
    pub(super) fn close(output: &Path) -> io::Result<()> {
        if RecordingNote::of(output)?.is_none() {
            return Ok(());
        }
        let mut checkpoint = Self::of(output, lock(open_owned(&output.join(DIRECTORY))?)?)?;
        checkpoint.repair()?;
        checkpoint.next_chunk()?;
        checkpoint.remove()
    }

    /// Removes partial writes of a recorder that was killed. Processes that the kernel still has
    /// will be read again from their checkpoint; the traces of all others are final.
    fn repair(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path
                .extension()
                .is_none_or(|extension| extension != "trace")
            {
                continue;
            }
            let start = read_note(&path, TraceStart::from_text)?;
            if let Some(start) = start.filter(|start| !start.ended && self.is_current(start)) {
                mend(&self.path(&start)?)?;
            }
        }
        chunks::finish_removals(&self.directory)?;
        match &self.chunk {
            Some(chunk) => chunks::finish_others(&self.output, chunk.number),
            None => Ok(()),
        }
    }

    /// The directory of the current chunk.
    pub(super) fn chunk_directory(&self) -> Option<PathBuf> {
        let chunk = self.chunk.as_ref()?;
        Some(self.output.join(chunk.current()))
    }

    /// The start of the current chunk, in seconds since 1970.
    pub(super) fn chunk_begin(&self) -> Option<u64> {
        self.chunk.map(|chunk| chunk.begin)
    }

    /// The number of the current chunk; 0 without chunks.
    pub(super) fn chunk_number(&self) -> u64 {
        self.chunk.map_or(0, |chunk| chunk.number)
    }

    /// Ends the current chunk, which must be completely written, and returns its final path. `None`
    /// means that the chunk was empty.
    pub(super) fn next_chunk(&mut self) -> io::Result<Option<PathBuf>> {
        let Some(chunk) = self.chunk else {
            return Ok(None);
        };
        // An earlier attempt may have failed halfway.
        chunks::finish_others(&self.output, chunk.number)?;
        let next = chunk.next(SystemTime::now());
        write_whole(&self.directory.join(CHUNK), &next.to_text())?;
        self.chunk = Some(next);
        chunks::finish_chunk(&self.output, &chunk)
    }

    /// Whether the trace belongs to the current chunk.
    pub(super) fn is_current(&self, start: &TraceStart) -> bool {
        start.chunk == self.chunk_number()
    }

    /// The directory of a process's trace in the current chunk. Rejects a noted name that would
    /// lead out of that chunk.
    pub(super) fn path(&self, start: &TraceStart) -> io::Result<PathBuf> {
        let is_name = !start.directory.starts_with('.') && !start.directory.contains('/');
        if !is_name || start.directory.is_empty() || !self.is_current(start) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let parent = self.chunk_directory();
        let parent = parent.as_deref().unwrap_or(&self.output);
        Ok(parent.join(&start.directory))
    }

    /// Reads the [`TraceStart`] of a process, by the name of its files.
    pub(super) fn trace_start(&self, name: &str) -> io::Result<Option<TraceStart>> {
        read_note(&self.file(name, "trace"), TraceStart::from_text)
    }

    /// Saves where the trace of a process starts, or continues in another chunk.
    pub(super) fn set_trace_start(&self, name: &str, start: &TraceStart) -> io::Result<()> {
        write_whole(&self.file(name, "trace"), &start.to_text())
    }

    /// Saves that the trace of a process is complete, if it has one.
    pub(super) fn set_ended(&self, name: &str) -> io::Result<()> {
        match self.trace_start(name)? {
            Some(start) => {
                let ended = true;
                self.set_trace_start(name, &TraceStart { ended, ..start })
            }
            None => Ok(()),
        }
    }

    /// Opens the checkpoint of a process.
    pub(super) fn process(&self, name: &str) -> io::Result<ProcessCheckpoint> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        Ok(ProcessCheckpoint {
            rings: options.open(self.file(name, "rings"))?,
            descriptions: self.file(name, "descriptions"),
            chunk: self.chunk_number(),
        })
    }

    /// Reads the checkpoints of the first `nr` rings of the channel with index `channel`.
    pub(super) fn rings(
        &self,
        name: &str,
        channel: u32,
        nr: u32,
    ) -> io::Result<Vec<RingCheckpoint>> {
        let file = match File::open(self.file(name, "rings")) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(vec![RingCheckpoint::default(); nr as usize]);
            }
            Err(error) => return Err(error),
        };
        (0..nr).map(|n| ring(&file, channel, n)).collect()
    }

    /// Removes the checkpoints of processes that have ended and that the kernel no longer knows.
    pub(super) fn remove_ended(&self, exists: &dyn Fn(&str) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let is_trace_start = path.extension().is_some_and(|of| of == "trace");
            if !is_trace_start || exists(&name) {
                continue;
            }
            if read_note(&path, TraceStart::from_text)?.is_some_and(|start| start.ended) {
                // This file first: the others belong to it.
                fs::remove_file(&path)?;
                for what in ["rings", "descriptions"] {
                    match fs::remove_file(self.file(&name, what)) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn file(&self, name: &str, what: &str) -> PathBuf {
        self.directory.join(format!("{name}.{what}"))
    }

    /// Removes the checkpoint of a complete recording.
    pub(super) fn remove(&self) -> io::Result<()> {
        // `trace` first: without it, the other files mean nothing.
        match fs::remove_file(self.directory.join(TRACE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::remove_dir_all(&self.directory),
        }
    }
}

/// Creates the output directory, or accepts an empty one: readers would mix other traces in.
/// Returns whether it is new.
pub(super) fn create_output(path: &Path) -> io::Result<bool> {
    let new = !path.exists();
    fs::create_dir_all(path)?;
    if is_empty(path)? {
        Ok(new)
    } else {
        let why = "it is not empty, and traces in it would be read together: name another one (-o)";
        Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, why))
    }
}

/// Creates the checkpoint directory, unless it exists.
///
/// # Errors
/// If the directory cannot be created, or belongs to another user.
pub(super) fn create(output: &Path) -> io::Result<File> {
    let checkpoint = output.join(DIRECTORY);
    match fs::create_dir(&checkpoint) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    open_owned(&checkpoint)
}

/// Opens the checkpoint directory, and rejects one that another user prepared. The recorder trusts
/// the checkpoint, removes unknown files there, and a symbolic link could lead anywhere.
fn open_owned(checkpoint: &Path) -> io::Result<File> {
    let directory =
        files::open_directory(checkpoint).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTDIR | libc::ELOOP) => {
                let why = format!("{DIRECTORY} in it is no directory (remove it)");
                io::Error::new(io::ErrorKind::NotADirectory, why)
            }
            _ => error,
        })?;
    // Some file systems give all files to one owner. Compare with a new file, not with the process.
    let own = tempfile::tempfile_in(checkpoint)?.metadata()?.uid();
    let owner = directory.metadata()?.uid();
    if owner == own {
        return Ok(directory);
    }
    let why =
        format!("the recording in it belongs to user {owner} (only that user can go on with it)");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Takes the lock of the recorder.
pub(super) fn lock(directory: File) -> io::Result<Flock<File>> {
    let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock);
    lock.map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another program records there")
        }
        error => error.into(),
    })
}

/// Where the trace of a process is, and whether it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceStart {
    /// The name of its directory.
    directory: String,
    pub(super) uuid: [u8; 16],
    /// The number of its chunk; 0 without chunks.
    chunk: u64,
    /// The trace is complete.
    pub(super) ended: bool,
}

impl TraceStart {
    pub(super) fn new(directory: String, uuid: [u8; 16], chunk: u64) -> Self {
        Self {
            directory,
            uuid,
            chunk,
            ended: false,
        }
    }

    fn to_text(&self) -> String {
        let uuid = u128::from_be_bytes(self.uuid);
        format!(
            "directory {}\nuuid {uuid:032x}\nchunk {}\nended {}\n",
            self.directory, self.chunk, self.ended
        )
    }

    fn from_text(text: &str) -> Option<Self> {
        let uuid = u128::from_str_radix(value(text, "uuid")?, 16).ok()?;
        Some(Self {
            directory: value(text, "directory")?.to_owned(),
            uuid: uuid.to_be_bytes(),
            chunk: value(text, "chunk")?.parse().ok()?,
            ended: value(text, "ended")?.parse().ok()?,
        })
    }
}

/// The checkpoint of one process.
#[derive(Debug)]
pub(super) struct ProcessCheckpoint {
    descriptions: PathBuf,
    rings: File,
    chunk: u64,
}

/// The checkpoint of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingCheckpoint {
    /// Number of updates; 0 means that the ring has no checkpoint.
    turn: u64,
    /// Everything below is in the files, or reported there as lost.
    position: u64,
    /// The chunk with the data up to `position`; 0 without chunks.
    chunk: u64,
    state: RingState,
    pub(super) counted: RingCounts,
}

impl RingCheckpoint {
    /// Up to where the ring was written to files; `None` without a checkpoint.
    pub(super) fn written(&self) -> Option<u64> {
        (self.turn != 0).then_some(self.position)
    }

    /// The state of the ring's stream in the given chunk.
    pub(super) fn state(&self, chunk: u64) -> RingState {
        self.state.in_chunk(self.chunk == chunk)
    }

    const WORDS: usize = 32;
    const STATE: usize = 3;
    const COUNTED: usize = Self::STATE + RingState::WORDS;
    const LEN: usize = Self::WORDS * 8;

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut words = [0; Self::WORDS];
        words[0] = self.turn;
        words[1] = self.position;
        words[2] = self.chunk;
        words[Self::STATE..][..RingState::WORDS].copy_from_slice(&self.state.to_words());
        words[Self::COUNTED..][..RingCounts::WORDS].copy_from_slice(&self.counted.to_words());
        words[Self::WORDS - 1] = sum(&words[..Self::WORDS - 1]);
        let mut bytes = [0; Self::LEN];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Parses a checkpoint; `None` if it was partially written.
    fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (chunks, _) = bytes.as_chunks();
        let words: Vec<u64> = chunks
            .iter()
            .map(|word| u64::from_ne_bytes(*word))
            .collect();
        let (summed, sums) = words.split_at(Self::WORDS - 1);
        if sums != [sum(summed)] {
            return None;
        }
        Some(Self {
            turn: summed[0],
            position: summed[1],
            chunk: summed[2],
            state: RingState::from_words(summed[Self::STATE..].first_chunk()?),
            counted: RingCounts::from_words(summed[Self::COUNTED..].first_chunk()?),
        })
    }
}

/// A checksum that is not 0 for zeros: holes of the file must not pass.
fn sum(words: &[u64]) -> u64 {
    // FNV-1a over words instead of bytes.
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        (sum ^ word).wrapping_mul(0x0100_0000_01b3)
    })
}

impl ProcessCheckpoint {
    /// Reads the declarations, without duplicate event ids and channels.
    pub(super) fn descriptions(&self) -> io::Result<Vec<Description>> {
        let mut text = match fs::read(&self.descriptions) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        // A partial line belongs to an event that was never written.
        let whole = text
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        if whole < text.len() {
            text.truncate(whole);
            let file = OpenOptions::new().write(true).open(&self.descriptions)?;
            file.set_len(whole as u64)?;
        }
        let (mut ids, mut channels) = (HashSet::new(), HashSet::new());
        let mut has_cmdline = false;
        let lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        let descriptions: Result<Vec<_>, _> = lines.map(Description::parse).collect();
        let mut descriptions =
            descriptions.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        descriptions.retain(|description| match description {
            Description::Event(event) => ids.insert(event.id),
            Description::Contexts(contexts) => channels.insert(contexts.channel),
            // The control channel has it, whose start is never consumed.
            Description::Counting(_) | Description::Module(_) => false,
            Description::Cmdline(_) => !std::mem::replace(&mut has_cmdline, true),
        });
        Ok(descriptions)
    }

    /// Appends declarations.
    pub(super) fn add_descriptions(&self, descriptions: &[Description]) -> io::Result<()> {
        if descriptions.is_empty() {
            return Ok(());
        }
        let lines: String = descriptions
            .iter()
            .map(|description| description.line() + "\n")
            .collect();
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.descriptions)?;
        file.write_all(lines.as_bytes())
    }

    /// Saves how far a ring was written to files, if that has changed.
    pub(super) fn set_ring(
        &self,
        channel: u32,
        ring: u32,
        saved: &mut RingCheckpoint,
        position: u64,
        state: RingState,
        counted: RingCounts,
    ) -> io::Result<()> {
        // Write the other copy: if the write is interrupted, the current copy remains valid.
        let turn = saved.turn + 1;
        let new = RingCheckpoint {
            turn,
            position,
            chunk: self.chunk,
            state,
            counted,
        };
        if saved.turn != 0 && (RingCheckpoint { turn, ..*saved }) == new {
            return Ok(());
        }
        let at = copy_offset(channel, ring, turn & 1);
        self.rings.write_all_at(&new.to_bytes(), at)?;
        *saved = new;
        Ok(())
    }
}

/// Reads the checkpoint of a ring: the newer one of its two copies.
fn ring(rings: &File, channel: u32, ring: u32) -> io::Result<RingCheckpoint> {
    let mut newest = RingCheckpoint::default();
    for copy in 0..2 {
        let mut bytes = [0; RingCheckpoint::LEN];
        match rings.read_exact_at(&mut bytes, copy_offset(channel, ring, copy)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error),
        }
        if let Some(saved) = RingCheckpoint::from_bytes(&bytes)
            && saved.turn > newest.turn
        {
            newest = saved;
        }
    }
    Ok(newest)
}

/// File offset of one of the two copies of a ring's checkpoint. Rings that do not exist are holes.
fn copy_offset(channel: u32, ring: u32, copy: u64) -> u64 {
    debug_assert!((channel as usize) < LTT_MAX_CHANNELS && ring < MAX_RINGS);
    let ring = u64::from(channel) * u64::from(MAX_RINGS) + u64::from(ring);
    (2 * ring + copy) * RingCheckpoint::LEN as u64
}

/// Replaces a file atomically.
pub(super) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first error is more useful than a second one. The next call overwrites the leftover
        // file.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// A user who could write to the output directory before must control neither what the recorder
    /// removes nor what it trusts.
    #[test]
    fn checkpoint_of_another_user_is_rejected() {
        let open = |output: &Path| Checkpoint::open(output, &RecordingNote::default(), false);
        let output = tempfile::tempdir().unwrap();
        let checkpoint = output.path().join(DIRECTORY);
        let elsewhere = tempfile::tempdir().unwrap();
        let file = elsewhere.path().join("file");
        fs::write(&file, "").unwrap();
        symlink(elsewhere.path(), &checkpoint).unwrap();
        let error = open(output.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{error}");
        assert!(file.exists());
        fs::remove_file(&checkpoint).unwrap();

        drop(open(output.path()).unwrap());
        drop(open(output.path()).unwrap());
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        chown(&checkpoint, Some(1), None).unwrap();
        let error = open(output.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(Checkpoint::close(output.path()).is_err());
    }
}
