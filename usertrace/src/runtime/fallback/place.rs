//! Where traces are begun: in the directory of the output, or in a chunk there.
//!
//! `usertrace record` says when a chunk ends. It names the next one in a file beside the traces,
//! and then asks the workers to write what is in the rings. They read the file when they are asked,
//! before they begin a trace, and now and then. A worker completes the traces that it has in a
//! chunk that is named no more, and begins others in the new one as soon as there is an event.
//!
//! A worker holds a lock of a chunk ([`Chunk::lock`]) while it has a trace there. `record` gives a
//! chunk its final name when nobody has such a lock, and no trace there has a mark
//! ([`unfinished`](usertrace_ctf::unfinished)). A worker reads the name of the chunk once more when
//! it has the lock. So a trace is either begun before `record` looks for locks, or not in that
//! chunk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use usertrace_ctf::recording::{Chunk, TraceLocation};
use usertrace_os::files;

use super::destination::Output;

/// How often a worker that is awake looks for another place.
const AGAIN: Duration = Duration::from_secs(1);

/// The place where a worker begins traces.
#[derive(Debug)]
pub(super) struct Places<'a> {
    output: &'a Output,
    now: TraceLocation,
    looked: Instant,
    /// The last error that was told.
    told: Option<String>,
}

impl<'a> Places<'a> {
    pub(super) fn new(output: &'a Output) -> Self {
        Self {
            output,
            now: TraceLocation::default(),
            looked: Instant::now(),
            told: None,
        }
    }

    /// The place, as it was when it was last looked for.
    pub(super) fn now(&self) -> TraceLocation {
        self.now
    }

    /// It is this one at least: another worker was there. Nothing leads back to where the same
    /// process may have a trace.
    pub(super) fn advance(&mut self, place: TraceLocation) {
        self.now = self.now.max(place);
    }

    /// Looks now and then, for where nobody can ask: `record` may be another user's, or in another
    /// namespace. To be called by a worker that is awake anyway.
    pub(super) fn look_again(&mut self) {
        if self.looked.elapsed() >= AGAIN {
            self.look();
        }
    }

    /// Looks which place is named now. A file that names none, which anybody may have written,
    /// changes nothing.
    pub(super) fn look(&mut self) -> TraceLocation {
        let Some(output) = self.output.directory() else {
            return self.now;
        };
        self.looked = Instant::now();
        let named = TraceLocation::named(output);
        let said = named.as_ref().err().map(|error| {
            format!(
                "cannot read \"{}\": {error}",
                TraceLocation::file(output).display()
            )
        });
        if said != self.told {
            if let Some(said) = &said {
                self.output.log(said);
            }
            self.told = said;
        }
        self.advance(named.unwrap_or_default());
        self.now
    }
}

/// A chunk that this process writes to, with a lock. `record` does not finish the chunk while a
/// process has that.
#[derive(Debug)]
pub(super) struct ChunkLock {
    /// None: this user may not open it, and only the mark of a trace keeps the chunk.
    _lock: Option<File>,
}

impl ChunkLock {
    /// Holds a chunk. Nothing if its directory is gone.
    ///
    /// # Errors
    /// When it is no directory, or somebody else has locked it for long.
    pub(super) fn new(output: &Path, chunk: &Chunk) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let lock = files::open(options.read(true), &chunk.lock(output)).ok();
        if let Some(lock) = &lock {
            match files::retry_lock(|| files::flock(lock, libc::LOCK_SH)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // Where files cannot be locked, only the mark keeps the chunk.
                _ => {}
            }
        }
        // It may have got its final name before it was locked.
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

    /// Nobody's file leads out of the directory, or back to where a trace may be already, and what
    /// is wrong with it is told once.
    #[test]
    fn a_wrong_file_changes_nothing_and_is_told_once() {
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

    /// A worker that cannot be asked sees another place after a second, if it is awake.
    #[test]
    fn a_worker_looks_now_and_then() {
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
    fn a_chunk_is_held_only_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (output, chunk) = (directory.path(), chunk(1));
        let hold = || ChunkLock::new(output, &chunk);
        let path = output.join(chunk.current());
        assert!(hold().unwrap().is_none());
        let other = output.join("other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        hold().unwrap_err();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        // Without a file to lock.
        assert!(hold().unwrap().is_some());
        fs::create_dir(output.join(DIRECTORY)).unwrap();
        let file = File::create(chunk.lock(output)).unwrap();
        let holds = [(); 2].map(|()| hold().unwrap().unwrap());
        files::flock(&file, libc::LOCK_EX).unwrap_err();
        drop(holds);
        files::flock(&file, libc::LOCK_EX).unwrap();
    }
}
