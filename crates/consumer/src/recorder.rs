//! The recording of one trace of the kernel's: which files there are, when chunks end, and what
//! becomes of it when the disk is full.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use usertrace_os::procfs;

use super::chunks::{self, Limits};
use super::control_fs::{consumer_files, is_consumer_file};
use super::error::{OutputError, RecordError, system};
use super::pid_filter::PidFilter;
use super::{
    CONTROL, KernelFile, Progress, Session, SessionError, SessionSummary, TraceDir, finished_chunks,
};

/// How often it is looked whether there is room again on a disk that is full.
const RETRY_FULL: Duration = Duration::from_secs(1);
/// Shortest time between two looks at how large the files are.
const MEASURE_INTERVAL: Duration = Duration::from_millis(100);
/// And how many times as long as a look took.
const MEASURE_PAUSE_FACTOR: u32 = 20;

/// Something that who waits for a recording is to be told.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecorderEvent {
    /// There is no room for what is to be written. Until there is, nothing is read: it stays in the
    /// rings, as far as these go.
    Full {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is room again, after so long.
    Room {
        /// Where.
        path: PathBuf,
        /// How long there was none.
        after: Duration,
    },
    /// This chunk is finished.
    Finished(PathBuf),
    /// This chunk was removed, as there may be no more.
    Removed(PathBuf),
    /// The recording ends, as there are as many bytes as there may be.
    TooLarge {
        /// Where.
        path: PathBuf,
        /// How many that are.
        limit: u64,
    },
    /// A chunk that should have been removed was not.
    NotRemoved(OutputError),
    /// No new chunk can be begun. The one that is written goes on.
    NotBegun(OutputError),
    /// This chunk is to be finished, which takes long.
    NotFinished {
        /// The chunk.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl RecorderEvent {
    /// Is something wrong?
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::TooLarge { .. }
                | Self::NotRemoved(_)
                | Self::NotBegun(_)
                | Self::NotFinished { .. }
        )
    }
}

impl std::fmt::Display for RecorderEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full { path, error } => write!(
                f,
                "cannot write to {}: {error}; nothing is read from the rings until that can be done",
                path.display()
            ),
            Self::Room { path, after } => write!(
                f,
                "there is room again in {}, after {:.1} s: the recording goes on",
                path.display(),
                after.as_secs_f64()
            ),
            Self::Finished(path) => write!(f, "{} is finished", path.display()),
            Self::Removed(path) => write!(f, "{} was removed, as the oldest", path.display()),
            Self::TooLarge { path, limit } => write!(
                f,
                "{} has {limit} bytes, which is as many as there may be: the recording ends",
                path.display()
            ),
            Self::NotRemoved(error) => {
                write!(f, "an old chunk is not removed: {error}: {}", error.source)
            }
            Self::NotBegun(error) => write!(
                f,
                "no new chunk is begun: {error}: {} (the one that is written goes on)",
                error.source
            ),
            Self::NotFinished { path, why } => {
                write!(f, "\"{}\" cannot be finished yet: {why}", path.display())
            }
        }
    }
}

/// Is it that there is no room, which may pass?
pub(super) fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    )
}

/// A disk that is full.
#[derive(Debug)]
struct DiskFull {
    since: Instant,
    tried: Instant,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// New files.
    pub(super) files: usize,
    pub(super) progress: Progress,
}

/// How large files are that are written.
#[derive(Debug)]
pub(super) struct SizeMeter {
    /// When and as what they were found, if they were.
    last: Option<(Instant, u64)>,
    /// How long that took.
    took: Duration,
    /// Bytes that were read from rings since then.
    read: u64,
}

impl SizeMeter {
    pub(super) const NEW: Self = Self {
        last: None,
        took: Duration::ZERO,
        read: 0,
    };

    /// Nobody knows how much was written since they were measured.
    pub(super) fn invalidate(&mut self) {
        self.read = u64::MAX;
    }

    /// Have they got so large?
    pub(super) fn has_reached(
        &mut self,
        limit: u64,
        measure: impl Fn() -> io::Result<u64>,
    ) -> io::Result<bool> {
        // Records are no more than twice as long in files.
        let more = self.read.saturating_mul(2);
        let upper = |of: &Self| of.last.map(|(_, bytes)| bytes.saturating_add(more));
        // Thousands of files are not looked at all the time.
        let pause = MEASURE_INTERVAL.max(self.took * MEASURE_PAUSE_FACTOR);
        let is_new = self.last.is_some_and(|(at, _)| at.elapsed() < pause);
        if is_new || upper(self).is_some_and(|bytes| bytes < limit) {
            return Ok(false);
        }
        let begun = Instant::now();
        let bytes = measure()?;
        self.took = begun.elapsed();
        (self.last, self.read) = (Some((Instant::now(), bytes)), 0);
        Ok(bytes >= limit)
    }
}

/// Files and directories that could not be opened, and why.
#[derive(Debug, Default)]
struct OpenFailures(BTreeMap<String, io::Error>);

impl OpenFailures {
    /// A file could not be opened. One that has gone since it was told of is of a process that has
    /// ended with nothing to read: the kernel keeps what was not consumed.
    fn add(&mut self, what: String, error: io::Error) {
        match error.kind() {
            io::ErrorKind::NotFound => self.0.remove(&what),
            _ => self.0.insert(what, error),
        };
    }
}

/// Records a trace to a directory.
#[derive(Debug)]
pub(super) struct TraceRecorder {
    pub(super) session: Session<KernelFile>,
    pub(super) trace: TraceDir,
    pub(super) output: PathBuf,
    watch: Watch,
    /// Whose files are read, if not all.
    pid_filter: Option<PidFilter>,
    limits: Limits,
    in_chunks: bool,
    /// A chunk is to end.
    pub(super) rotates_now: bool,
    /// When the chunk was begun that is written.
    begun: Instant,
    meter: SizeMeter,
    /// Nothing more is to be recorded.
    pub(super) is_too_large: bool,
    full: Option<DiskFull>,
    /// Files that were told of were not taken.
    must_scan: bool,
    /// They are tried again in the end.
    open_failures: OpenFailures,
    news: Vec<RecorderEvent>,
}

impl TraceRecorder {
    /// Records a trace, in chunks or not. From here on it has no other channels.
    pub(super) fn new(
        trace: TraceDir,
        session: Session<KernelFile>,
        output: &Path,
        pid_filter: Option<PidFilter>,
        limits: Limits,
    ) -> Result<Self, RecordError> {
        let channels = trace.channels()?;
        let watch =
            Watch::new(&trace, &channels).map_err(system("watch the trace for processes"))?;
        let mut session = session;
        session.set_channels(channels);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let begin = session.chunk_begin();
        let age = begin.map(|begin| now.map_or(0, |now| now.as_secs()).saturating_sub(begin));
        let age = Duration::from_secs(age.unwrap_or(0));
        let now = Instant::now();
        Ok(Self {
            in_chunks: begin.is_some(),
            session,
            trace,
            output: output.to_owned(),
            watch,
            pid_filter,
            limits,
            rotates_now: false,
            begun: now.checked_sub(age).unwrap_or(now),
            meter: SizeMeter::NEW,
            is_too_large: false,
            full: None,
            // Nobody tells of files that were there before.
            must_scan: true,
            open_failures: OpenFailures::default(),
            news: Vec::new(),
        })
    }

    /// Likewise, of a trace that is there, to where there may be a recording of it.
    pub(super) fn open(
        trace: TraceDir,
        output: &Path,
        pid_filter: Option<PidFilter>,
        limits: Limits,
        in_chunks: bool,
    ) -> Result<Self, RecordError> {
        let recorded = trace.recorded()?;
        let session = match in_chunks {
            true => Session::open_in_chunks(output, &recorded, procfs::hostname()),
            false => Session::open(output, &recorded, procfs::hostname()),
        };
        let session = session.map_err(OutputError::at(output))?;
        Self::new(trace, session, output, pid_filter, limits)
    }

    /// What is readable when there are new files.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.watch.inotify.as_fd()
    }

    /// What happened since the last time.
    pub(super) fn take_news(&mut self) -> Vec<RecorderEvent> {
        std::mem::take(&mut self.news)
    }

    /// Have all processes ended, if only some are recorded?
    pub(super) fn all_ended(&self) -> Result<bool, RecordError> {
        let ended = self
            .pid_filter
            .as_ref()
            .map_or(Ok(false), PidFilter::all_ended);
        ended.map_err(system("look at processes"))
    }

    /// Is the disk full, as far as it was tried?
    pub(super) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Takes the files that have come, or all that there are, and reads what there is. If the disk
    /// is full, it is tried each second whether it still is, or now if somebody insists.
    pub(super) fn round(&mut self, all: bool, insist: bool) -> Result<Round, RecordError> {
        let waits = |full: &DiskFull| full.tried.elapsed() < RETRY_FULL && !insist;
        if self.full.as_ref().is_some_and(waits) {
            return Ok(Round::default());
        }
        let round = self.try_round(all);
        self.unless_full(round)
    }

    /// The same, or nothing if there was no room for it.
    fn unless_full<T: Default>(
        &mut self,
        result: Result<T, SessionError>,
    ) -> Result<T, RecordError> {
        let now = Instant::now();
        match result {
            Ok(done) => {
                if let Some(full) = self.full.take() {
                    self.news.push(RecorderEvent::Room {
                        path: self.output.clone(),
                        after: full.since.elapsed(),
                    });
                }
                Ok(done)
            }
            Err(SessionError::Write(error)) if is_no_room(&error) => {
                match &mut self.full {
                    Some(full) => full.tried = now,
                    none => {
                        *none = Some(DiskFull {
                            since: now,
                            tried: now,
                        });
                        self.news.push(RecorderEvent::Full {
                            path: self.output.clone(),
                            error,
                        });
                    }
                }
                Ok(T::default())
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: SessionError) -> RecordError {
        match error {
            SessionError::Write(error) => OutputError::at(&self.output)(error).into(),
            SessionError::Busy { channel, name } => RecordError::Busy {
                path: self.trace.channel(&channel).join(name),
            },
        }
    }

    fn try_round(&mut self, all: bool) -> Result<Round, SessionError> {
        let files = self.take_files(all)?;
        let progress = self.session.drain(false, Instant::now())?;
        self.meter.read += progress.bytes;
        self.keep_limits()?;
        Ok(Round { files, progress })
    }

    /// Ends the chunk if it is time for that, and keeps to what there may be.
    fn keep_limits(&mut self) -> Result<(), SessionError> {
        if !self.in_chunks {
            if let Some(limit) = self.limits.max_size
                && !self.is_too_large
                && self
                    .meter
                    .has_reached(limit, || chunks::size(&self.output))?
            {
                self.is_too_large = true;
                let path = self.output.clone();
                self.news.push(RecorderEvent::TooLarge { path, limit });
            }
            return Ok(());
        }
        let is_large = match self.limits.chunk_size() {
            Some(limit) => self
                .meter
                .has_reached(limit, || self.session.chunk_size())?,
            None => false,
        };
        let age = self.begun.elapsed();
        let is_old = self.limits.rotate_time.is_some_and(|time| age >= time);
        if is_large || is_old || self.rotates_now {
            self.rotate()?;
        }
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), SessionError> {
        let finished = self.session.rotate()?;
        self.news.extend(finished.map(RecorderEvent::Finished));
        (self.begun, self.meter, self.rotates_now) = (Instant::now(), SizeMeter::NEW, false);
        self.remove_old();
        Ok(())
    }

    /// Removes the chunks of which there are too many.
    pub(super) fn remove_old(&mut self) {
        remove_old(&self.output, &self.limits, &mut self.news);
    }

    /// Takes the files that have come, of those that the kernel told of, or of all. Gives how many
    /// there were.
    fn take_files(&mut self, all: bool) -> Result<usize, SessionError> {
        let files = match self.watch.new_files() {
            Ok(Some(files)) if !all && !self.must_scan => files,
            // Some were not told of, as there were too many; or were not taken then.
            _ => self.all_files(),
        };
        self.must_scan = true;
        let mut taken = 0;
        for (channel, name) in files {
            let is_other = self
                .pid_filter
                .as_ref()
                .is_some_and(|filter| !filter.has(&name));
            if is_other || !self.session.wants(&channel, &name) {
                continue;
            }
            let what = format!("{channel}/{name}");
            let path = self.trace.channel(&channel).join(&name);
            // Descriptions are read, and never consumed.
            let file = match channel.as_str() {
                CONTROL => KernelFile::open(&path),
                _ => KernelFile::open_to_consume(&path),
            };
            match file {
                Ok(file) => {
                    taken += 1;
                    self.open_failures.0.remove(&what);
                    self.session.add(&channel, &name, file)?;
                }
                Err(error) => {
                    self.open_failures.add(what, error);
                }
            }
        }
        self.must_scan = false;
        Ok(taken)
    }

    fn all_files(&mut self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for (_, channel) in &self.watch.channels {
            match consumer_files(&self.trace.channel(channel)) {
                Ok(names) => files.extend(names.into_iter().map(|name| (channel.clone(), name))),
                Err(error) => {
                    self.open_failures.0.insert(channel.clone(), error);
                }
            }
        }
        files
    }

    /// Forgets processes of which the kernel has nothing any more.
    pub(super) fn forget(&mut self) -> Result<(), RecordError> {
        let (mut names, mut failed) = (std::collections::BTreeSet::new(), false);
        for (_, channel) in &self.watch.channels {
            match consumer_files(&self.trace.channel(channel)) {
                Ok(files) => names.extend(files),
                Err(_) => failed = true,
            }
        }
        if failed {
            return Ok(());
        }
        self.open_failures.0.retain(|what, _| {
            what.split_once('/')
                .is_none_or(|(_, name)| names.contains(name))
        });
        let forgotten = self.session.forget(&|name| names.contains(name));
        forgotten.map_err(|error| OutputError::at(&self.output)(error).into())
    }

    /// Ends the recording. None: there is no room for the rest.
    pub(super) fn finish(&mut self) -> Result<Option<SessionSummary>, RecordError> {
        for (what, error) in std::mem::take(&mut self.open_failures.0) {
            self.session.problem(&what, &error);
        }
        let finished = self.try_finish().map(Some);
        self.unless_full(finished)
    }

    fn try_finish(&mut self) -> Result<SessionSummary, SessionError> {
        self.session.drain(true, Instant::now())?;
        let finished = self.session.rotate()?;
        self.news.extend(finished.map(RecorderEvent::Finished));
        // As long as there are notes, whose directory this needs.
        self.remove_old();
        self.session.finish()
    }

    /// Writes what readers need, and is not in the files: the recording is left as it is, to go on
    /// later.
    pub(super) fn suspend(&mut self) -> Result<(), RecordError> {
        self.round(false, true)?;
        let completed = self.session.complete();
        self.unless_full(completed)
    }

    /// Why there is something that is in no file.
    pub(super) fn no_room(&self) -> RecordError {
        let (processes, bytes) = self.session.unwritten();
        RecordError::NoRoom {
            path: self.output.clone(),
            processes,
            bytes,
        }
    }
}

/// Removes the chunks of which there are too many.
pub(super) fn remove_old(output: &Path, limits: &Limits, news: &mut Vec<RecorderEvent>) {
    let removed = try_remove_old(output, limits, news);
    if let Err(error) = removed.map_err(OutputError::at(output)) {
        news.push(RecorderEvent::NotRemoved(error));
    }
}

fn try_remove_old(output: &Path, limits: &Limits, news: &mut Vec<RecorderEvent>) -> io::Result<()> {
    if limits.keep.is_none() && limits.max_size.is_none() {
        return Ok(());
    }
    let chunks = finished_chunks(output)?;
    let sizes: io::Result<Vec<u64>> = chunks.iter().map(|chunk| chunks::size(chunk)).collect();
    let sizes = sizes?;
    // With room for the one that is written.
    let room = limits
        .max_size
        .map(|size| size.saturating_sub(limits.chunk_size().unwrap_or(0)));
    let (mut left, mut bytes) = (chunks.len(), sizes.iter().sum::<u64>());
    for (chunk, size) in chunks.iter().zip(sizes) {
        let is_one_too_many = limits.keep.is_some_and(|keep| left > keep);
        if !is_one_too_many && room.is_none_or(|room| bytes <= room) {
            break;
        }
        chunks::remove_chunk(output, chunk)?;
        news.push(RecorderEvent::Removed(chunk.clone()));
        left -= 1;
        bytes -= size;
    }
    Ok(())
}

/// Tells of new files in the channels' directories (C4).
#[derive(Debug)]
struct Watch {
    inotify: Inotify,
    channels: Vec<(WatchDescriptor, String)>,
}

impl Watch {
    /// Watches the channel that describes events, and these.
    fn new(trace: &TraceDir, names: &[String]) -> nix::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let mut channels = Vec::new();
        for channel in std::iter::once(CONTROL).chain(names.iter().map(String::as_str)) {
            let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ONLYDIR;
            let watch = inotify.add_watch(&trace.channel(channel), flags)?;
            channels.push((watch, channel.to_owned()));
        }
        Ok(Self { inotify, channels })
    }

    /// The files that were created since the last time. None: there were too many to tell.
    fn new_files(&self) -> nix::Result<Option<Vec<(String, String)>>> {
        let mut files = Vec::new();
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(Some(files)),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error),
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    return Ok(None);
                }
                let channel = self.channels.iter().find(|(watch, _)| *watch == event.wd);
                let name = event.name.and_then(|name| name.into_string().ok());
                if let (Some((_, channel)), Some(name)) = (channel, name)
                    && is_consumer_file(&name)
                {
                    files.push((channel.clone(), name));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_measured_seldom() {
        let mut meter = SizeMeter::NEW;
        let looks = std::cell::Cell::new(0);
        let slowly = || {
            looks.set(looks.get() + 1);
            std::thread::sleep(Duration::from_millis(10));
            Ok(1)
        };
        assert!(meter.has_reached(1, slowly).unwrap());
        for _ in 0..2 {
            meter.invalidate();
            assert!(!meter.has_reached(1, slowly).unwrap());
            std::thread::sleep(MEASURE_INTERVAL);
        }
        assert_eq!(looks.get(), 1);
        std::thread::sleep(MEASURE_INTERVAL);
        meter.invalidate();
        assert!(meter.has_reached(1, slowly).unwrap());
    }

    #[test]
    fn a_process_that_ended_meanwhile_is_no_problem() {
        let mut open_failures = OpenFailures::default();
        let error = |kind| io::Error::from(kind);
        open_failures.add("control/1.2".into(), error(io::ErrorKind::NotFound));
        open_failures.add("main/1.2".into(), error(io::ErrorKind::PermissionDenied));
        open_failures.add("main/3.4".into(), error(io::ErrorKind::PermissionDenied));
        // It has gone since.
        open_failures.add("main/3.4".into(), error(io::ErrorKind::NotFound));
        let files: Vec<_> = open_failures.0.keys().collect();
        assert_eq!(files, ["main/1.2"]);
    }
}
