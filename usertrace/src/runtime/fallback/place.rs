//! The place of new traces: the output directory, or a chunk in it.
//!
//! `usertrace record` decides when a chunk ends. It names the next chunk in a file beside the
//! traces, and then asks the workers to write what is in the rings. They read the file on that
//! request, before they begin a trace, and from time to time. A worker completes its traces in a
//! chunk that the file does not name any more, and begins others in the new one as soon as there is
//! an event.
//!
//! A worker locks a chunk ([`Chunk::lock`]) while it has a trace there. `record` gives a chunk its
//! final name when it has no locks, and no trace there has a mark
//! ([`unfinished`](usertrace_ctf::unfinished)). A worker reads the file once more when it has the
//! lock. So either it begins a trace before `record` looks for locks, or it does not begin it in
//! that chunk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use usertrace_ctf::recording::{Chunk, TraceLocation, is_sent};
use usertrace_os::files;

use super::destination::Output;

/// Interval in which a worker that is awake reads the file.
const AGAIN: Duration = Duration::from_secs(1);

/// The part of a disk that workers leave at most, see [`Places::has_room_for`].
const MOST_LEFT: u64 = 6;

/// Follows the place of new traces.
#[derive(Debug)]
pub(super) struct Places<'a> {
    output: &'a Output,
    now: TraceLocation,
    /// Events are to stay in the rings.
    is_held: bool,
    /// What is written is sent to a relay, and then removed.
    is_sent: bool,
    processes: u64,
    looked: Instant,
    /// The last error that was logged.
    logged: Option<String>,
}

impl<'a> Places<'a> {
    pub(super) fn new(output: &'a Output) -> Self {
        Self {
            output,
            now: TraceLocation::default(),
            is_held: false,
            is_sent: false,
            processes: 0,
            looked: Instant::now(),
            logged: None,
        }
    }

    /// The place at the last look.
    pub(super) fn now(&self) -> TraceLocation {
        self.now
    }

    /// Whether events are to stay in the rings, as the recording has no room for more at present.
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether the room may end before the recorder says so.
    pub(super) fn is_limited(&self) -> bool {
        self.is_sent
    }

    /// Whether so many bytes have room for each process of the worker.
    ///
    /// What waits for a relay is removed only when its chunk is complete, and that takes room. The
    /// recorder watches the size of what waits, but may not run for a moment.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        let Some(output) = self.output.directory().filter(|_| self.is_sent) else {
            return true;
        };
        // A disk that does not say is filled until an error tells.
        files::room(output).map_or(true, |room| {
            let left = bytes.saturating_mul(self.processes);
            room.free >= left.min(room.all / MOST_LEFT)
        })
    }

    /// Sets how many processes the worker writes the events of.
    pub(super) fn set_processes(&mut self, processes: usize) {
        self.processes = processes as u64;
    }

    /// Advances to a place that another worker has used. The place never goes back, as the same
    /// process may have a trace in an earlier one.
    pub(super) fn advance(&mut self, place: TraceLocation) {
        self.now = self.now.max(place);
    }

    /// Reads the file if [`AGAIN`] has passed since the last look. A worker that is awake calls
    /// this, as `record` may be another user's or in another namespace, and unable to ask it.
    pub(super) fn look_again(&mut self) {
        if self.looked.elapsed() >= AGAIN {
            self.look();
        }
    }

    /// Reads the file, and returns the place. An invalid file, which anybody may have written,
    /// changes nothing.
    pub(super) fn look(&mut self) -> TraceLocation {
        let Some(output) = self.output.directory() else {
            return self.now;
        };
        self.looked = Instant::now();
        let named = TraceLocation::named_with_hold(output);
        let error = named.as_ref().err().map(|error| {
            format!(
                "cannot read \"{}\": {error}",
                TraceLocation::file(output).display()
            )
        });
        if error != self.logged {
            if let Some(error) = &error {
                self.output.log(error);
            }
            self.logged = error;
        }
        let (named, is_held) = named.unwrap_or_default();
        self.is_held = is_held;
        self.is_sent = matches!(named, TraceLocation::Chunk(_)) && is_sent(output);
        self.advance(named);
        self.now
    }
}

/// A lock of a chunk that this process writes to. `record` does not finish the chunk meanwhile.
#[derive(Debug)]
pub(super) struct ChunkLock {
    /// None: this user may not open the file. Then only the mark of a trace protects the chunk.
    _lock: Option<File>,
}

impl ChunkLock {
    /// Locks a chunk; none if its directory is gone.
    ///
    /// # Errors
    /// It is no directory, or another process has it locked for long.
    pub(super) fn new(output: &Path, chunk: &Chunk) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let lock = files::open(options.read(true), &chunk.lock(output)).ok();
        if let Some(lock) = &lock {
            match files::retry_lock(|| files::flock(lock, libc::LOCK_SH)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // If the file system has no locks, only the mark protects the chunk.
                _ => {}
            }
        }
        // `record` may have given it its final name before it was locked.
        match fs::symlink_metadata(output.join(chunk.current())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(there) if !there.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
            there => there.map(|_| Some(Self { _lock: lock })),
        }
    }
}

/// Recreates the directory of the chunk that the recorder named, if it was removed.
pub(super) fn recreate(chunk: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(chunk)
}

#[cfg(test)]
mod tests {
    use usertrace_ctf::Version;
    use usertrace_ctf::recording::DIRECTORY;

    use super::*;

    fn chunk(number: u64) -> Chunk {
        Chunk { number, begin: 7 }
    }

    fn name(output: &Path, text: &[u8]) {
        fs::create_dir_all(output.join(DIRECTORY)).unwrap();
        fs::write(TraceLocation::file(output), text).unwrap();
    }

    /// No file leads out of the directory, or back to a place that may have a trace. Each error is
    /// logged once.
    #[test]
    fn an_invalid_file_changes_nothing_and_is_reported_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let output = Output::below(path.to_owned(), Version::V1_8);
        let mut places = Places::new(&output);
        let good = TraceLocation::Chunk(chunk(3));
        for (text, place) in [
            (&b"/etc\n"[..], TraceLocation::Directory),
            (b"number ../../x\nbegin 7\n", TraceLocation::Directory),
            (&[0xff; 1000], TraceLocation::Directory),
            (good.to_text().unwrap().as_bytes(), good),
            (b"", good),
            (b"number 2\nbegin 7\n", good),
        ] {
            name(path, text);
            assert_eq!((places.look(), places.look()), (place, place));
            let below = place.below(path).unwrap();
            assert!(below == path || below.parent() == Some(path));
        }
        let log = fs::read_to_string(path.join("usertrace.log")).unwrap();
        assert!(
            log.lines().all(|line| line.contains("cannot read")),
            "{log}"
        );
        assert_eq!(log.lines().count(), 3, "{log}");
    }

    /// A worker that is awake sees another place after a second, without a request.
    #[test]
    fn a_worker_reads_the_file_from_time_to_time() {
        let directory = tempfile::tempdir().unwrap();
        let output = Output::below(directory.path().to_owned(), Version::V1_8);
        let mut places = Places::new(&output);
        let named = TraceLocation::Chunk(chunk(1));
        name(directory.path(), named.to_text().unwrap().as_bytes());
        places.look_again();
        assert_eq!(places.now(), TraceLocation::Directory);
        std::thread::sleep(AGAIN);
        places.look_again();
        assert_eq!(places.now(), named);
    }

    #[test]
    fn only_an_existing_chunk_is_locked() {
        let directory = tempfile::tempdir().unwrap();
        let (output, chunk) = (directory.path(), chunk(1));
        let lock = || ChunkLock::new(output, &chunk);
        let path = output.join(chunk.current());
        assert!(lock().unwrap().is_none());
        let other = output.join("other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        lock().unwrap_err();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        // Without a file to lock.
        assert!(lock().unwrap().is_some());
        fs::create_dir(output.join(DIRECTORY)).unwrap();
        let file = File::create(chunk.lock(output)).unwrap();
        let locks = [(); 2].map(|()| lock().unwrap().unwrap());
        files::flock(&file, libc::LOCK_EX).unwrap_err();
        drop(locks);
        files::flock(&file, libc::LOCK_EX).unwrap();
    }
}
