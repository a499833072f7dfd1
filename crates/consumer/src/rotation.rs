//! Chunks of a recording by the fallback: the daemons write them, and `record` decides when one
//! ends.
//!
//! The file `.usertrace/place` in the output directory names the chunk in which new traces start. A
//! chunk ends in this order:
//!
//! 1. `record` creates the directory of the next chunk.
//! 2. It names that directory in the file.
//! 3. It makes the workers check the file ([`ask_below`]). They complete their traces in the old
//!    chunk.
//! 4. When nobody holds the old chunk's lock and no trace in it has a mark, `record` renames it to
//!    its final name.
//!
//! The recording never waits for step 4. A worker that does not respond delays only its own chunk.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::unistd::{UnlinkatFlags, unlinkat};
use usertrace_ctf::recording::{Chunk, DIRECTORY, LOG, TraceLocation};
use usertrace_ctf::unfinished::{self, State};
use usertrace_os::files;

use super::RecorderEvent;
use super::checkpoint;
use super::chunks::{self, Limits};
use super::daemons::ask_below;
use super::error::{OutputError, describe};
use super::recorder::remove_old;
use super::size_meter::SizeMeter;

/// Time between two measurements of the files' size.
const LOOK: Duration = Duration::from_millis(100);
/// Polling interval while a chunk that just ended still has writers.
const SOON: Duration = Duration::from_millis(5);
/// How long before the end of a chunk the workers write the contents of the rings to it.
const AHEAD: Duration = Duration::from_millis(150);
/// Initial time after which daemons that still write to an ended chunk are signalled again.
const AGAIN: Duration = Duration::from_millis(50);
/// Maximum of that time, which doubles each time.
const SELDOM: Duration = Duration::from_secs(5);
/// How long daemons may take before the user is informed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before retrying to start a chunk.
const RETRY: Duration = Duration::from_secs(1);

/// Ends chunks, and enforces the recording's limits.
#[derive(Debug)]
pub(super) struct Rotation {
    /// The path that events show to the user.
    output: PathBuf,
    limits: Limits,
    /// The chunk in which new traces start; `None` without chunks.
    chunk: Option<Chunk>,
    begun: Instant,
    meter: SizeMeter,
    /// The workers were asked to write the contents of the rings to this chunk.
    is_asked: bool,
    /// Ended chunks in which traces may still be completed.
    ending: Vec<EndingChunk>,
    is_too_large: bool,
    /// The workers leave events in the rings.
    is_held: bool,
    /// Time of the last failed attempt to start a chunk.
    failed: Option<Instant>,
    events: Vec<RecorderEvent>,
}

/// An ended chunk that daemons may still write to.
#[derive(Debug)]
struct EndingChunk {
    chunk: Chunk,
    since: Instant,
    /// When to signal the daemons again, and how long to wait after that.
    again: Instant,
    pause: Duration,
    is_reported: bool,
}

impl Rotation {
    /// Starts to enforce the limits in this directory. Returns `None` if there are none.
    ///
    /// # Errors
    /// If the first chunk cannot be created.
    pub(super) fn new(output: &Path, limits: Limits) -> io::Result<Option<Self>> {
        if limits == Limits::default() {
            return Ok(None);
        }
        let mut rotation = Self {
            output: output.to_owned(),
            limits,
            chunk: None,
            begun: Instant::now(),
            meter: SizeMeter::NEW,
            is_asked: false,
            ending: Vec::new(),
            is_too_large: false,
            is_held: false,
            failed: None,
            events: Vec::new(),
        };
        if limits.rotates() {
            let first = Chunk::after(chunks::last_number(output)?, SystemTime::now());
            if let Err(error) = rotation.begin(first) {
                // Report the first error.
                let _ = fs::remove_dir_all(output.join(DIRECTORY));
                return Err(error);
            }
        }
        Ok(Some(rotation))
    }

    /// Removes everything that was created, if nothing was recorded.
    pub(super) fn forget(self) {
        if let Some(chunk) = self.chunk {
            // The caller reports an earlier error; a failure here would hide it.
            let _ = fs::remove_dir(self.output.join(chunk.current()));
        }
        let _ = fs::remove_dir_all(self.output.join(DIRECTORY));
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<RecorderEvent> {
        std::mem::take(&mut self.events)
    }

    /// How long to wait before the next [`Self::step`].
    pub(super) fn pause(&self) -> Duration {
        let is_soon = |ending: &EndingChunk| ending.since.elapsed() < RETRY;
        match self.ending.iter().any(is_soon) {
            true => SOON,
            false => LOOK,
        }
    }

    /// Ends the chunk if it is due, and finishes ended chunks that have no writers.
    pub(super) fn step(&mut self) {
        self.finish_left();
        if self.failed.is_some_and(|at| at.elapsed() < RETRY) {
            return;
        }
        match self.keep_limits() {
            Ok(()) => self.failed = None,
            Err(error) => {
                if self.failed.replace(Instant::now()).is_none() {
                    let error = OutputError::at(&self.output)(error);
                    self.events.push(RecorderEvent::ChunkNotStarted(error));
                }
            }
        }
    }

    /// Makes the workers leave events in the rings, or go on. They write what there is at the end
    /// of a chunk or of a process anyway.
    ///
    /// # Errors
    /// If that cannot be written where they look.
    pub(super) fn hold(&mut self, is_held: bool) -> io::Result<()> {
        if is_held == self.is_held {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.is_held, is_held);
        let named = self
            .chunk
            .map_or(Ok(()), |chunk| self.name(TraceLocation::Chunk(chunk)));
        match named {
            Ok(()) => self.ask(),
            Err(_) => self.is_held = before,
        }
        named
    }

    fn keep_limits(&mut self) -> io::Result<()> {
        let Some(chunk) = self.chunk else {
            return self.keep_size();
        };
        let path = self.output.join(chunk.current());
        let is_large = match self.limits.chunk_size() {
            Some(limit) => {
                self.meter.invalidate();
                self.meter.has_reached(limit, || chunks::size(&path))?
            }
            None => false,
        };
        let age = self.begun.elapsed();
        let is_due = |time: Duration| age >= time;
        // Chunks that have to wait are not made smaller.
        let time = self.limits.rotate_time.filter(|_| !self.is_held);
        if is_large || time.is_some_and(is_due) {
            return self.rotate(chunk);
        }
        // Slowly written events must get into the chunk of their time.
        if !self.is_asked && time.is_some_and(|time| is_due(time.saturating_sub(AHEAD))) {
            self.is_asked = true;
            self.ask();
        }
        Ok(())
    }

    /// Makes all workers write the contents of their rings, and check where new traces start. An
    /// unreachable daemon checks that with its next trace. If it already has a trace, it is
    /// signalled again later, and finally reported.
    fn ask(&self) {
        let _ = ask_below(&self.output);
    }

    /// Without chunks, ends the recording when it is too large.
    fn keep_size(&mut self) -> io::Result<()> {
        let Some(limit) = self.limits.max_size.filter(|_| !self.is_too_large) else {
            return Ok(());
        };
        self.meter.invalidate();
        if self
            .meter
            .has_reached(limit, || chunks::size(&self.output))?
        {
            self.name(TraceLocation::Nowhere)?;
            self.is_too_large = true;
            let path = self.output.clone();
            self.events
                .push(RecorderEvent::SizeLimitReached { path, limit });
            self.ask();
        }
        Ok(())
    }

    fn rotate(&mut self, chunk: Chunk) -> io::Result<()> {
        let is_empty = match fs::read_dir(self.output.join(chunk.current())) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        // Start a new chunk unless the current one is empty and unlocked. With a lock holder, an
        // empty chunk means that somebody removed its traces, and the daemons must start new ones.
        if is_empty && is_free(&self.output, &chunk) {
            self.reset();
            self.ask();
            return Ok(());
        }
        self.begin(chunk.next(SystemTime::now()))?;
        let now = Instant::now();
        self.ending.push(EndingChunk {
            chunk,
            since: now,
            again: now + AGAIN,
            pause: AGAIN,
            is_reported: false,
        });
        self.ask();
        Ok(())
    }

    /// Starts a chunk.
    fn begin(&mut self, chunk: Chunk) -> io::Result<()> {
        let path = self.output.join(chunk.current());
        fs::create_dir(&path)?;
        let named = copy_permissions(&self.output, &path)
            .and_then(|()| self.make_lock(&chunk))
            .and_then(|()| self.name(TraceLocation::Chunk(chunk)));
        if let Err(error) = named {
            // Report the first error.
            let _ = fs::remove_file(chunk.lock(&self.output));
            let _ = fs::remove_dir(&path);
            return Err(error);
        }
        self.chunk = Some(chunk);
        self.reset();
        Ok(())
    }

    fn reset(&mut self) {
        (self.begun, self.meter, self.is_asked) = (Instant::now(), SizeMeter::NEW, false);
    }

    /// Writes where new traces start.
    fn name(&self, place: TraceLocation) -> io::Result<()> {
        checkpoint::create(&self.output)?;
        let text = match self.is_held {
            true => place.to_text_on_hold(),
            false => place.to_text(),
        };
        text.map_or(Ok(()), |text| {
            checkpoint::write_whole(&TraceLocation::file(&self.output), &text)
        })
    }

    /// Creates the file that daemons of this user lock while they write to a chunk.
    fn make_lock(&self, chunk: &Chunk) -> io::Result<()> {
        checkpoint::create(&self.output)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        options.open(chunk.lock(&self.output)).map(drop)
    }

    /// Finishes the ended chunks that have no writers, and signals the daemons of all others again.
    fn finish_left(&mut self) {
        let mut ending = std::mem::take(&mut self.ending);
        let before = ending.len();
        ending.retain_mut(|ending| match finish(&self.output, &ending.chunk) {
            Ok(Some(finished)) => {
                self.events
                    .extend(finished.map(RecorderEvent::ChunkFinished));
                false
            }
            unfinished => {
                let path = self.output.join(ending.chunk.current());
                self.events
                    .extend(ending.ask_again(&path, unfinished.err()));
                true
            }
        });
        if ending.len() < before {
            remove_old(&self.output, &self.limits, &mut self.events);
        }
        self.ending = ending;
    }

    /// Ends the recording. `all` means that no daemon runs, so all chunks are finished. Otherwise
    /// daemons continue to write to the last chunk.
    ///
    /// # Errors
    /// If a chunk cannot be finished.
    pub(super) fn end(&mut self, all: bool) -> io::Result<()> {
        if !all {
            self.finish_left();
            return Ok(());
        }
        let ending = std::mem::take(&mut self.ending);
        let chunks = ending.into_iter().map(|ending| ending.chunk);
        for chunk in chunks.chain(self.chunk.take()) {
            let finished = chunks::finish_chunk(&self.output, &chunk)?;
            self.events
                .extend(finished.map(RecorderEvent::ChunkFinished));
        }
        // A daemon may have created a chunk's directory again.
        chunks::finish_others(&self.output, 0)?;
        remove_old(&self.output, &self.limits, &mut self.events);
        match fs::remove_dir_all(self.output.join(DIRECTORY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl EndingChunk {
    /// Signals the daemons that still write to the chunk, in `path`, again from time to time.
    /// `error` is another reason why the chunk could not be finished.
    fn ask_again(&mut self, path: &Path, error: Option<io::Error>) -> Option<RecorderEvent> {
        let now = Instant::now();
        if now < self.again {
            return None;
        }
        self.pause = (self.pause * 2).min(SELDOM);
        self.again = now + self.pause;
        let refused = ask_below(path).err();
        if self.is_reported || now.duration_since(self.since) < PATIENCE {
            return None;
        }
        self.is_reported = true;
        let why = match (error, refused) {
            (Some(error), _) => error.to_string(),
            (None, Some(error)) => describe(&error),
            (None, None) => {
                format!("daemons still write there ({LOG} beside it may say why)")
            }
        };
        let path = path.to_owned();
        Some(RecorderEvent::ChunkNotFinished { path, why })
    }
}

/// Whether nobody holds the lock of a chunk.
fn is_free(output: &Path, chunk: &Chunk) -> bool {
    let file = files::open(OpenOptions::new().read(true), &chunk.lock(output));
    file.is_ok_and(|file| files::flock(&file, libc::LOCK_EX).is_ok())
}

/// Renames a chunk to its final name, and returns the path. `None`: it has writers. `Some(None)`:
/// it was empty.
fn finish(output: &Path, chunk: &Chunk) -> io::Result<Option<Option<PathBuf>>> {
    let path = output.join(chunk.current());
    let directory = match files::open_directory(&path) {
        // Somebody else removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(None)),
        directory => directory?,
    };
    // If there is no lock, or it cannot be taken, only marks show who writes there.
    let lock = chunk.lock(output);
    let file = files::open(OpenOptions::new().read(true), &lock);
    match file.as_ref().map(|file| files::flock(file, libc::LOCK_EX)) {
        Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        _ => {}
    }
    for trace in fs::read_dir(&path)? {
        let trace = trace?;
        // An empty trace belongs to a daemon that was killed; the next one starts in another chunk.
        // This call does not remove other traces.
        let _ = unlinkat(
            &directory,
            Path::new(&trace.file_name()),
            UnlinkatFlags::RemoveDir,
        );
        if is_written(&trace.path()) {
            return Ok(None);
        }
    }
    let finished = chunks::finish_chunk(output, chunk)?;
    // The finished chunk needs no lock. If this fails, the file is removed with the checkpoint.
    let _ = fs::remove_file(lock);
    Ok(Some(finished))
}

/// Whether a trace is still to be completed: it has a mark, and nobody has given it up.
fn is_written(trace: &Path) -> bool {
    let is_given_up = || match unfinished::state(trace) {
        State::Incomplete(reason) => !reason.is_empty(),
        State::Complete | State::Running | State::Ending => false,
    };
    fs::symlink_metadata(trace.join(unfinished::NAME)).is_ok() && !is_given_up()
}

/// Gives a chunk the permissions of the output directory, so that the same users can write to it.
fn copy_permissions(output: &Path, chunk: &Path) -> io::Result<()> {
    let permissions = fs::metadata(output)?.permissions();
    files::open_directory(chunk)?.set_permissions(permissions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usertrace_ctf::unfinished::Unfinished;

    /// Other users who can read the chunks must not be able to block daemons.
    #[test]
    fn only_this_user_can_lock_a_chunk() {
        use std::os::unix::fs::PermissionsExt;
        let output = tempfile::tempdir().unwrap();
        let limits = Limits {
            rotate_size: Some(1),
            ..Limits::default()
        };
        let mut rotation = Rotation::new(output.path(), limits).unwrap().unwrap();
        let chunk = rotation.chunk.unwrap();
        let lock = fs::metadata(chunk.lock(output.path())).unwrap();
        assert_eq!(lock.permissions().mode() & 0o777, 0o600);
        let trace = output.path().join(chunk.current()).join("prog-1-1");
        fs::create_dir(&trace).unwrap();
        fs::write(trace.join("metadata"), "12").unwrap();
        rotation.step();
        rotation.step();
        let path = output.path().join(chunk.name());
        let events = rotation.take_events();
        assert!(
            matches!(&events[..], [RecorderEvent::ChunkFinished(of)] if *of == path),
            "{events:?}"
        );
        assert!(!chunk.lock(output.path()).exists());
        rotation.end(true).unwrap();
        let names: Vec<_> = fs::read_dir(output.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn unfinished_chunk_is_reported_once() {
        let output = tempfile::tempdir().unwrap();
        let Some(since) = Instant::now().checked_sub(PATIENCE) else {
            return;
        };
        let mut ending = EndingChunk {
            chunk: Chunk {
                number: 1,
                begin: 7,
            },
            since,
            again: since,
            pause: AGAIN,
            is_reported: false,
        };
        let event = ending.ask_again(output.path(), None).unwrap();
        assert!(event.is_trouble());
        assert!(event.to_string().contains("usertrace.log"), "{event}");
        ending.again = since;
        assert!(ending.ask_again(output.path(), None).is_none());
        ending.is_reported = false;
        ending.again = since;
        let error = io::Error::from_raw_os_error(libc::EACCES);
        let event = ending.ask_again(output.path(), Some(error)).unwrap();
        assert!(event.to_string().contains("Permission denied"), "{event}");
    }

    /// Requirements: A10
    #[test]
    fn chunk_is_finished_when_it_has_no_writer() {
        let output = tempfile::tempdir().unwrap();
        let chunk = Chunk {
            number: 1,
            begin: 7,
        };
        let path = output.path().join(chunk.current());
        let finish = || finish(output.path(), &chunk).unwrap();
        let finished = output.path().join(chunk.name());
        // Daemons were killed before they wrote anything.
        fs::create_dir_all(path.join("prog-1-1")).unwrap();
        assert_eq!(finish(), Some(None));
        assert!(!path.exists());

        let trace = path.join("prog-1-1");
        fs::create_dir_all(&trace).unwrap();
        fs::write(trace.join("metadata"), "").unwrap();
        fs::create_dir(output.path().join(DIRECTORY)).unwrap();
        let lock = fs::File::create(chunk.lock(output.path())).unwrap();
        files::flock(&lock, libc::LOCK_SH).unwrap();
        assert_eq!(finish(), None, "somebody holds it");
        drop(lock);
        // Another worker will continue the trace of a killed one.
        drop(Unfinished::mark(&trace, std::process::id()).unwrap());
        assert_eq!(finish(), None, "a trace is to be completed");
        let mark = Unfinished::mark(&trace, std::process::id()).unwrap();
        mark.fail("No space left");
        assert_eq!(finish(), None, "it is being given up");
        drop(mark);
        assert_eq!(finish(), Some(Some(finished.clone())));
        assert!(finished.join("prog-1-1/metadata").exists());
        // Somebody else moved it away.
        assert_eq!(finish(), Some(None));

        // A user with write permission to the directory cannot redirect the recorder.
        let other = tempfile::tempdir().unwrap();
        fs::create_dir(other.path().join("empty")).unwrap();
        std::os::unix::fs::symlink(other.path(), &path).unwrap();
        super::finish(output.path(), &chunk).unwrap_err();
        assert!(other.path().join("empty").exists());
    }
}
