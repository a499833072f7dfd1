//! Chunks of a recording by the fallback: the daemons write them, and `record` says when one ends.
//!
//! The file `.usertrace/place` in the output's directory names the chunk in which traces are begun.
//! A chunk ends in this order:
//!
//! 1. the directory of the next one is made;
//! 2. the file names that;
//! 3. the workers are asked to look ([`ask_below`]): they complete their traces in the old chunk;
//! 4. when nobody holds its lock, and no trace in it has a mark, it gets its final name.
//!
//! The recording never waits for 4. A worker that does not come that far keeps its chunk, and those
//! of all others go on.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::unistd::{UnlinkatFlags, unlinkat};
use usertrace_ctf::recording::{Chunk, DIRECTORY, LOG, Place};
use usertrace_ctf::unfinished::{self, State};
use usertrace_os::files;

use super::RecorderEvent;
use super::checkpoint;
use super::chunks::{self, Limits};
use super::daemons::ask_below;
use super::error::{OutputError, describe};
use super::recorder::{SizeMeter, remove_old};

/// Between two looks at how large the files are.
const LOOK: Duration = Duration::from_millis(100);
/// Between two looks whether daemons have left a chunk that ended a moment ago.
const SOON: Duration = Duration::from_millis(5);
/// How long before its time a chunk gets what is in the rings.
const AHEAD: Duration = Duration::from_millis(150);
/// When daemons are asked once more that have not left a chunk.
const AGAIN: Duration = Duration::from_millis(50);
/// And how long to wait at most between two times.
const SELDOM: Duration = Duration::from_secs(5);
/// How long daemons may take before somebody is told.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before a chunk is tried to be begun that could not be.
const RETRY: Duration = Duration::from_secs(1);

/// Ends chunks, and keeps to what there may be.
#[derive(Debug)]
pub(super) struct Rotation {
    /// As it is called where somebody reads of it.
    output: PathBuf,
    limits: Limits,
    /// The chunk in which traces are begun; none: there are no chunks.
    chunk: Option<Chunk>,
    begun: Instant,
    meter: SizeMeter,
    /// What is in the rings was asked for, for this chunk.
    is_asked: bool,
    /// Those in which traces may still be completed.
    ending: Vec<EndingChunk>,
    is_too_large: bool,
    /// When the last try failed to begin a chunk.
    failed: Option<Instant>,
    news: Vec<RecorderEvent>,
}

/// A chunk that daemons are to leave.
#[derive(Debug)]
struct EndingChunk {
    chunk: Chunk,
    since: Instant,
    /// When they are asked once more, and how long to wait then.
    again: Instant,
    pause: Duration,
    is_reported: bool,
}

impl Rotation {
    /// Keeps to limits in this directory. Nothing if there are none.
    ///
    /// # Errors
    /// When the first chunk cannot be made.
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
            failed: None,
            news: Vec::new(),
        };
        if limits.rotates() {
            let first = Chunk::after(chunks::last_number(output)?, SystemTime::now());
            if let Err(error) = rotation.begin(first) {
                // It is the error to tell.
                let _ = fs::remove_dir_all(output.join(DIRECTORY));
                return Err(error);
            }
        }
        Ok(Some(rotation))
    }

    /// Takes everything back, where nothing was recorded.
    pub(super) fn forget(self) {
        if let Some(chunk) = self.chunk {
            // What fails here comes after an error, which is the one to tell.
            let _ = fs::remove_dir(self.output.join(chunk.current()));
        }
        let _ = fs::remove_dir_all(self.output.join(DIRECTORY));
    }

    /// What happened since the last time.
    pub(super) fn take_news(&mut self) -> Vec<RecorderEvent> {
        std::mem::take(&mut self.news)
    }

    /// When to call [`Self::step`] again.
    pub(super) fn pause(&self) -> Duration {
        let is_soon = |ending: &EndingChunk| ending.since.elapsed() < RETRY;
        match self.ending.iter().any(is_soon) {
            true => SOON,
            false => LOOK,
        }
    }

    /// Ends the chunk if it is time for that, and finishes those that nobody writes to any more.
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
                    self.news.push(RecorderEvent::NotBegun(error));
                }
            }
        }
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
        let time = self.limits.rotate_time;
        if is_large || time.is_some_and(is_due) {
            return self.rotate(chunk);
        }
        // What a program writes slowly is to be in the chunk of its time.
        if !self.is_asked && time.is_some_and(|time| is_due(time.saturating_sub(AHEAD))) {
            self.is_asked = true;
            self.ask();
        }
        Ok(())
    }

    /// Asks all daemons to write what is in the rings, and to look where. A daemon that is not
    /// reached looks when it begins a trace; one that has a trace is asked again, and somebody
    /// told.
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
            self.name(Place::Nowhere)?;
            self.is_too_large = true;
            let path = self.output.clone();
            self.news.push(RecorderEvent::TooLarge { path, limit });
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
        // Otherwise somebody removed what daemons write there: they are to begin anew.
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

    /// Begins a chunk.
    fn begin(&mut self, chunk: Chunk) -> io::Result<()> {
        let path = self.output.join(chunk.current());
        fs::create_dir(&path)?;
        let named = copy_permissions(&self.output, &path)
            .and_then(|()| self.make_lock(&chunk))
            .and_then(|()| self.name(Place::Chunk(chunk)));
        if let Err(error) = named {
            // It is the error to tell.
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

    /// Says where traces are to be begun.
    fn name(&self, place: Place) -> io::Result<()> {
        checkpoint::create(&self.output)?;
        let text = place.to_text();
        text.map_or(Ok(()), |text| {
            checkpoint::write_whole(&Place::file(&self.output), &text)
        })
    }

    /// Makes what daemons of this user lock who write to a chunk.
    fn make_lock(&self, chunk: &Chunk) -> io::Result<()> {
        checkpoint::create(&self.output)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        options.open(chunk.lock(&self.output)).map(drop)
    }

    /// Finishes the chunks that all daemons have left, and asks those that have not.
    fn finish_left(&mut self) {
        let mut ending = std::mem::take(&mut self.ending);
        let before = ending.len();
        ending.retain_mut(|ending| match finish(&self.output, &ending.chunk) {
            Ok(Some(finished)) => {
                self.news.extend(finished.map(RecorderEvent::Finished));
                false
            }
            unfinished => {
                let path = self.output.join(ending.chunk.current());
                self.news.extend(ending.ask_again(&path, unfinished.err()));
                true
            }
        });
        if ending.len() < before {
            remove_old(&self.output, &self.limits, &mut self.news);
        }
        self.ending = ending;
    }

    /// The recording ends. `all`: no daemon is left, so all chunks are finished. Otherwise the
    /// daemons go on to write to the one that was named last.
    ///
    /// # Errors
    /// When a chunk cannot be finished.
    pub(super) fn end(&mut self, all: bool) -> io::Result<()> {
        if !all {
            self.finish_left();
            return Ok(());
        }
        let ending = std::mem::take(&mut self.ending);
        let chunks = ending.into_iter().map(|ending| ending.chunk);
        for chunk in chunks.chain(self.chunk.take()) {
            let finished = chunks::finish_chunk(&self.output, &chunk)?;
            self.news.extend(finished.map(RecorderEvent::Finished));
        }
        // Those that a daemon made again.
        chunks::finish_others(&self.output, 0)?;
        remove_old(&self.output, &self.limits, &mut self.news);
        match fs::remove_dir_all(self.output.join(DIRECTORY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl EndingChunk {
    /// Asks the daemons once more that still write to the chunk, in `path`, from time to time.
    /// `error`: why it could not be finished, if that is not that they do.
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
        Some(RecorderEvent::NotFinished { path, why })
    }
}

/// Nobody writes to a chunk, as far as its lock says.
fn is_free(output: &Path, chunk: &Chunk) -> bool {
    let file = files::open(OpenOptions::new().read(true), &chunk.lock(output));
    file.is_ok_and(|file| files::flock(&file, libc::LOCK_EX).is_ok())
}

/// Gives a chunk its final name. None: somebody still writes there. Some(None): there was nothing
/// in it.
fn finish(output: &Path, chunk: &Chunk) -> io::Result<Option<Option<PathBuf>>> {
    let path = output.join(chunk.current());
    let directory = match files::open_directory(&path) {
        // Somebody took it away.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(None)),
        directory => directory?,
    };
    // Without it, or where it cannot be locked, only marks say who writes there.
    let lock = chunk.lock(output);
    let file = files::open(OpenOptions::new().read(true), &lock);
    match file.as_ref().map(|file| files::flock(file, libc::LOCK_EX)) {
        Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        _ => {}
    }
    for trace in fs::read_dir(&path)? {
        let trace = trace?;
        // One that is empty is of a daemon that was killed there, and the next one begins anew, in
        // another chunk. Others are not removed.
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
    // A chunk that is gone is not locked any more. What is left goes with the notes.
    let _ = fs::remove_file(lock);
    Ok(Some(finished))
}

/// A trace is to be completed yet: nobody has said why that cannot be.
fn is_written(trace: &Path) -> bool {
    let is_given_up = || match unfinished::state(trace) {
        State::Incomplete(reason) => !reason.is_empty(),
        State::Complete | State::GoesOn | State::Ending => false,
    };
    fs::symlink_metadata(trace.join(unfinished::NAME)).is_ok() && !is_given_up()
}

/// Lets those write to a chunk who may write to the directory in which it is.
fn copy_permissions(output: &Path, chunk: &Path) -> io::Result<()> {
    let permissions = fs::metadata(output)?.permissions();
    files::open_directory(chunk)?.set_permissions(permissions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usertrace_ctf::unfinished::Unfinished;

    /// Others who may read the chunks cannot keep daemons from writing there.
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
        let news = rotation.take_news();
        assert!(
            matches!(&news[..], [RecorderEvent::Finished(of)] if *of == path),
            "{news:?}"
        );
        assert!(!chunk.lock(output.path()).exists());
        rotation.end(true).unwrap();
        let names: Vec<_> = fs::read_dir(output.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_chunk_that_is_not_left_is_told_once() {
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
        let told = ending.ask_again(output.path(), None).unwrap();
        assert!(told.is_trouble());
        assert!(told.to_string().contains("usertrace.log"), "{told}");
        ending.again = since;
        assert!(ending.ask_again(output.path(), None).is_none());
        ending.is_reported = false;
        ending.again = since;
        let error = io::Error::from_raw_os_error(libc::EACCES);
        let told = ending.ask_again(output.path(), Some(error)).unwrap();
        assert!(told.to_string().contains("Permission denied"), "{told}");
    }

    /// Requirements: A10
    #[test]
    fn a_chunk_is_finished_when_nobody_writes_there() {
        let output = tempfile::tempdir().unwrap();
        let chunk = Chunk {
            number: 1,
            begin: 7,
        };
        let path = output.path().join(chunk.current());
        let finish = || finish(output.path(), &chunk).unwrap();
        let finished = output.path().join(chunk.name());
        // Daemons were killed before they had anything.
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
        // Another worker goes on where one was killed.
        drop(Unfinished::mark(&trace, std::process::id()).unwrap());
        assert_eq!(finish(), None, "a trace is to be completed");
        let mark = Unfinished::mark(&trace, std::process::id()).unwrap();
        mark.fail("No space left");
        assert_eq!(finish(), None, "it is being given up");
        drop(mark);
        assert_eq!(finish(), Some(Some(finished.clone())));
        assert!(finished.join("prog-1-1/metadata").exists());
        // Others moved it away.
        assert_eq!(finish(), Some(None));

        // Whoever may write to the directory does not lead the recorder elsewhere.
        let other = tempfile::tempdir().unwrap();
        fs::create_dir(other.path().join("empty")).unwrap();
        std::os::unix::fs::symlink(other.path(), &path).unwrap();
        super::finish(output.path(), &chunk).unwrap_err();
        assert!(other.path().join("empty").exists());
    }
}
