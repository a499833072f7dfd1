//! What a recorder notes beside the traces that it writes, so that another one goes on where it was
//! killed.
//!
//! In the directory `.usertrace` below that of the traces, which is there as long as the recording
//! has not come to its end:
//!
//! | file | |
//! |---|---|
//! | `trace` | which trace is recorded ([`Recorded`]); whoever records holds the lock of the directory |
//! | `chunk` | which chunk is written, if there are chunks ([`chunks`](super::chunks)) |
//! | `PID.NUMBER.trace` | where the trace of that process is ([`Begun`]); it comes before that trace |
//! | `PID.NUMBER.descriptions` | what is declared there: events, and contexts of channels, each a line; before an event is written |
//! | `PID.NUMBER.rings` | for each ring, where it was read to, and where its stream file stood then ([`RingNote`]) |
//!
//! What was read is written, then noted, then consumed. So what was consumed is in the files, and
//! what is in them beyond the note is cut off and read again.
//!
//! A chunk ends in this order: all that is to be said of what was read is written and noted;
//! `chunk` names the next one; the old one's directory gets its final name. From then on nothing is
//! written there, whatever notes say of it. A process comes into the next chunk when there is
//! something of it: a new [`Begun`], as a whole, after which what rings' notes say of streams
//! counts no more, as these are of the chunk before, and only their positions do.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use usertrace_ctf::recording::{CHUNK, Chunk, DIRECTORY, Recorded, TRACE, read_note, value};
use usertrace_ctf::{RingCounts, RingState, mend};
use usertrace_os::files;
use usertrace_ring::MAX_RINGS;
use usertrace_ring::schema::Description;
use usertrace_sys::uapi::LTT_MAX_CHANNELS;

use super::chunks;

/// Is there nothing in the directory `output`, other than notes?
pub(super) fn is_empty(output: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(output)? {
        if entry?.file_name() != DIRECTORY {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes the notes away if there is nothing that they are about.
pub(super) fn forget(output: &Path) {
    // What fails here comes after an error, which is the one to tell.
    if is_empty(output).is_ok_and(|empty| empty) {
        let _ = fs::remove_dir_all(output.join(DIRECTORY));
    }
}

/// The notes of a recording.
#[derive(Debug)]
pub(super) struct Notes {
    output: PathBuf,
    directory: PathBuf,
    /// The chunk that is written; none: there are no chunks.
    chunk: Option<Chunk>,
    _lock: Flock<File>,
}

impl Notes {
    /// Begins to record a trace to the directory `output`, in chunks if that is asked for; or goes
    /// on with it.
    pub(super) fn open(output: &Path, of: &Recorded, in_chunks: bool) -> io::Result<Self> {
        let directory = output.join(DIRECTORY);
        let lock = lock(make(output)?)?;
        let before = Recorded::of(output)?;
        if before.is_none() {
            // What is left of notes that were not removed to the end is about nothing.
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
        let notes = Self::of(output, lock)?;
        if in_chunks && notes.chunk.is_none() {
            let error = "a recording without chunks, which cannot get any, was begun there";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, error));
        }
        if let Some(before) = before {
            notes.mend()?;
            if !before.is_same(of) {
                // What there is of it can be read now.
                let name = before.name;
                let error = format!(
                    "there is what was recorded of another trace {name}, or of one that is gone"
                );
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, error));
            }
        }
        Ok(notes)
    }

    /// The notes of a recording that was begun.
    fn of(output: &Path, lock: Flock<File>) -> io::Result<Self> {
        let directory = output.join(DIRECTORY);
        Ok(Self {
            output: output.to_owned(),
            chunk: read_note(&directory.join(CHUNK), Chunk::from_text)?,
            directory,
            _lock: lock,
        })
    }

    /// Ends a recording whose recorder was killed, and whose trace is gone: what there is of it is
    /// all that there will be. Nothing happens if there is none.
    pub(super) fn close(output: &Path) -> io::Result<()> {
        if Recorded::of(output)?.is_none() {
            return Ok(());
        }
        let mut notes = Self::of(output, lock(own(&output.join(DIRECTORY))?)?)?;
        notes.mend()?;
        notes.next_chunk()?;
        notes.remove()
    }

    /// Takes away what a recorder that was killed left half written. Processes that the kernel
    /// still knows will be read again from where the notes end; of the others, this is all that
    /// there will be.
    fn mend(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path
                .extension()
                .is_none_or(|extension| extension != "trace")
            {
                continue;
            }
            let begun = read_note(&path, Begun::from_text)?;
            if let Some(begun) = begun.filter(|begun| !begun.ended && self.is_current(begun)) {
                mend(&self.path(&begun)?)?;
            }
        }
        chunks::remove_rest(&self.directory)?;
        match &self.chunk {
            Some(chunk) => chunks::finish_others(&self.output, chunk.number),
            None => Ok(()),
        }
    }

    /// The directory of the chunk that is written.
    pub(super) fn chunk_directory(&self) -> Option<PathBuf> {
        let chunk = self.chunk.as_ref()?;
        Some(self.output.join(chunk.current()))
    }

    /// When that chunk was begun.
    pub(super) fn chunk_begin(&self) -> Option<u64> {
        self.chunk.map(|chunk| chunk.begin)
    }

    /// The number of the chunk that is written; 0: there are no chunks.
    pub(super) fn chunk_number(&self) -> u64 {
        self.chunk.map_or(0, |chunk| chunk.number)
    }

    /// Ends a chunk, to which everything was written. Gives where it is; none: there was nothing in
    /// it.
    pub(super) fn next_chunk(&mut self) -> io::Result<Option<PathBuf>> {
        let Some(chunk) = self.chunk else {
            return Ok(None);
        };
        // If the last time was not that lucky.
        chunks::finish_others(&self.output, chunk.number)?;
        let next = chunk.next(SystemTime::now());
        write_whole(&self.directory.join(CHUNK), &next.to_text())?;
        self.chunk = Some(next);
        chunks::finish_chunk(&self.output, &chunk)
    }

    /// Is it of the chunk that is written?
    pub(super) fn is_current(&self, begun: &Begun) -> bool {
        begun.chunk == self.chunk_number()
    }

    /// Where the trace of a process is that is written now. Not elsewhere, whatever was noted.
    pub(super) fn path(&self, begun: &Begun) -> io::Result<PathBuf> {
        let is_name = !begun.directory.starts_with('.') && !begun.directory.contains('/');
        if !is_name || begun.directory.is_empty() || !self.is_current(begun) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let parent = self.chunk_directory();
        let parent = parent.as_deref().unwrap_or(&self.output);
        Ok(parent.join(&begun.directory))
    }

    /// What is noted of a process, by the name of its files.
    pub(super) fn begun(&self, name: &str) -> io::Result<Option<Begun>> {
        read_note(&self.file(name, "trace"), Begun::from_text)
    }

    /// Notes that the trace of a process begins, or goes on in another chunk.
    pub(super) fn begin(&self, name: &str, begun: &Begun) -> io::Result<()> {
        write_whole(&self.file(name, "trace"), &begun.to_text())
    }

    /// Notes that everything of a process is in the trace, if there is one.
    pub(super) fn end(&self, name: &str) -> io::Result<()> {
        match self.begun(name)? {
            Some(begun) => {
                let ended = true;
                self.begin(name, &Begun { ended, ..begun })
            }
            None => Ok(()),
        }
    }

    /// The notes of a process that was begun.
    pub(super) fn process(&self, name: &str) -> io::Result<ProcessNotes> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        Ok(ProcessNotes {
            rings: options.open(self.file(name, "rings"))?,
            descriptions: self.file(name, "descriptions"),
            chunk: self.chunk_number(),
        })
    }

    /// What is noted of these rings of the channel of index `channel`.
    pub(super) fn rings(&self, name: &str, channel: u32, nr: u32) -> io::Result<Vec<RingNote>> {
        let file = match File::open(self.file(name, "rings")) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(vec![RingNote::default(); nr as usize]);
            }
            Err(error) => return Err(error),
        };
        (0..nr).map(|n| ring(&file, channel, n)).collect()
    }

    /// Takes away the notes of processes that have ended, and of which the kernel has nothing any
    /// more.
    pub(super) fn forget(&self, exists: &dyn Fn(&str) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let is_begun = path.extension().is_some_and(|of| of == "trace");
            if !is_begun || exists(&name) {
                continue;
            }
            if read_note(&path, Begun::from_text)?.is_some_and(|begun| begun.ended) {
                // First what the others belong to.
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

    /// The recording has come to its end.
    pub(super) fn remove(&self) -> io::Result<()> {
        // First what says that there are notes: without it, the rest means nothing.
        match fs::remove_file(self.directory.join(TRACE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::remove_dir_all(&self.directory),
        }
    }
}

/// Makes the directory of the notes, unless it is there.
///
/// # Errors
/// When it cannot be made, or somebody else prepared it.
pub(super) fn make(output: &Path) -> io::Result<File> {
    let notes = output.join(DIRECTORY);
    match fs::create_dir(&notes) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    own(&notes)
}

/// Opens the directory of the notes. Not one that somebody else prepared: what notes say is
/// believed, what is not noted is removed, and a link leads elsewhere.
fn own(notes: &Path) -> io::Result<File> {
    let directory = files::open_directory(notes).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTDIR | libc::ELOOP) => {
            let why = format!("{DIRECTORY} in it is no directory (remove it)");
            io::Error::new(io::ErrorKind::NotADirectory, why)
        }
        _ => error,
    })?;
    // A file system may give all files to one owner: then that is this process, too.
    let own = tempfile::tempfile_in(notes)?.metadata()?.uid();
    let owner = directory.metadata()?.uid();
    if owner == own {
        return Ok(directory);
    }
    let why =
        format!("the recording in it belongs to user {owner} (only that user can go on with it)");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Makes this process the one that records there.
fn lock(directory: File) -> io::Result<Flock<File>> {
    let lock = Flock::lock(directory, FlockArg::LockExclusiveNonblock);
    lock.map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another program records there")
        }
        error => error.into(),
    })
}

/// The trace of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// The name of its directory.
    directory: String,
    pub(super) uuid: [u8; 16],
    /// The number of its chunk; 0: there are no chunks.
    chunk: u64,
    /// Everything is in it.
    pub(super) ended: bool,
}

impl Begun {
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

/// The notes of one process.
#[derive(Debug)]
pub(super) struct ProcessNotes {
    descriptions: PathBuf,
    rings: File,
    chunk: u64,
}

/// What is noted of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingNote {
    /// How often something was noted. 0: never.
    turn: u64,
    /// Everything below is in the files, or was told to be missing.
    position: u64,
    /// The chunk that it was written to; 0: there are no chunks.
    chunk: u64,
    state: RingState,
    pub(super) counted: RingCounts,
}

impl RingNote {
    /// Up to where the ring was written, if that was noted.
    pub(super) fn written(&self) -> Option<u64> {
        (self.turn != 0).then_some(self.position)
    }

    /// Where its stream stands in this chunk.
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

    /// None: it was not written as a whole.
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

/// Not 0 for zeros, which are what a file has where nothing was written.
fn sum(words: &[u64]) -> u64 {
    // FNV-1a, with words for bytes.
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        (sum ^ word).wrapping_mul(0x0100_0000_01b3)
    })
}

impl ProcessNotes {
    /// What was declared, each id of an event and each channel once.
    pub(super) fn descriptions(&self) -> io::Result<Vec<Description>> {
        let mut text = match fs::read(&self.descriptions) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        // Half a line is of something of which nothing was written.
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
            Description::Cmdline(_) => !std::mem::replace(&mut has_cmdline, true),
        });
        Ok(descriptions)
    }

    /// Notes what is declared.
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

    /// Notes how far a ring was written, if that is new.
    pub(super) fn set_ring(
        &self,
        channel: u32,
        ring: u32,
        note: &mut RingNote,
        position: u64,
        state: RingState,
        counted: RingCounts,
    ) -> io::Result<()> {
        // Beside the one that holds, which remains if this one is not written as a whole.
        let turn = note.turn + 1;
        let new = RingNote {
            turn,
            position,
            chunk: self.chunk,
            state,
            counted,
        };
        if note.turn != 0 && (RingNote { turn, ..*note }) == new {
            return Ok(());
        }
        let at = place(channel, ring, turn & 1);
        self.rings.write_all_at(&new.to_bytes(), at)?;
        *note = new;
        Ok(())
    }
}

/// What is noted of a ring of the channel of index `channel`.
fn ring(rings: &File, channel: u32, ring: u32) -> io::Result<RingNote> {
    let mut newest = RingNote::default();
    for copy in 0..2 {
        let mut bytes = [0; RingNote::LEN];
        match rings.read_exact_at(&mut bytes, place(channel, ring, copy)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error),
        }
        if let Some(note) = RingNote::from_bytes(&bytes)
            && note.turn > newest.turn
        {
            newest = note;
        }
    }
    Ok(newest)
}

/// Where a ring's notes are: the file has holes where there are no rings.
fn place(channel: u32, ring: u32, copy: u64) -> u64 {
    debug_assert!((channel as usize) < LTT_MAX_CHANNELS && ring < MAX_RINGS);
    let ring = u64::from(channel) * u64::from(MAX_RINGS) + u64::from(ring);
    (2 * ring + copy) * RingNote::LEN as u64
}

/// Writes a file as a whole, or not at all.
pub(super) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // If this fails too, there is no better error to tell. What is left is written over.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Who could write to the directory of a recording before it began, chooses neither what is
    /// removed nor what is believed.
    #[test]
    fn notes_that_somebody_else_prepared_are_not_taken() {
        let open = |output: &Path| Notes::open(output, &Recorded::default(), false);
        let output = tempfile::tempdir().unwrap();
        let notes = output.path().join(DIRECTORY);
        let elsewhere = tempfile::tempdir().unwrap();
        let file = elsewhere.path().join("file");
        fs::write(&file, "").unwrap();
        symlink(elsewhere.path(), &notes).unwrap();
        let error = open(output.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{error}");
        assert!(file.exists());
        fs::remove_file(&notes).unwrap();

        drop(open(output.path()).unwrap());
        drop(open(output.path()).unwrap());
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        chown(&notes, Some(1), None).unwrap();
        let error = open(output.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(Notes::close(output.path()).is_err());
    }
}
