//! The recording of one trace of the kernel: finds consumer files, ends chunks, and handles a full
//! disk.

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
use super::relay::{RelayEvent, RelaySender, Times};
use super::size_meter::SizeMeter;
use super::{
    CONTROL, KernelFile, Progress, Session, SessionError, SessionSummary, TraceDir, finished_chunks,
};

/// How often to retry while the disk is full.
const RETRY_FULL: Duration = Duration::from_secs(1);

/// An event of the recording that is reported to the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecorderEvent {
    /// The disk is full. Nothing is read until there is space again; events stay in the rings, as
    /// far as these have room.
    DiskFull {
        /// The output directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// There is space again.
    SpaceAvailable {
        /// The output directory.
        path: PathBuf,
        /// How long the disk was full.
        after: Duration,
    },
    /// A chunk is finished.
    ChunkFinished(PathBuf),
    /// A chunk was removed to keep the limits.
    ChunkRemoved(PathBuf),
    /// The recording ends because it has reached its maximum size.
    SizeLimitReached {
        /// The output directory.
        path: PathBuf,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// A chunk could not be removed.
    ChunkNotRemoved(OutputError),
    /// No new chunk can be started. The current one continues.
    ChunkNotStarted(OutputError),
    /// Something happened while the recording was sent to a relay.
    Relay(RelayEvent),
    /// A chunk takes long to finish.
    ChunkNotFinished {
        /// The chunk.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl RecorderEvent {
    /// Whether this is a problem.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        if let Self::Relay(event) = self {
            return event.is_trouble();
        }
        matches!(
            self,
            Self::DiskFull { .. }
                | Self::SizeLimitReached { .. }
                | Self::ChunkNotRemoved(_)
                | Self::ChunkNotStarted(_)
                | Self::ChunkNotFinished { .. }
        )
    }
}

impl std::fmt::Display for RecorderEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DiskFull { path, error } => write!(
                f,
                "cannot write to {}: {error}; nothing is read from the rings until that can be done",
                path.display()
            ),
            Self::SpaceAvailable { path, after } => write!(
                f,
                "there is room again in {}, after {:.1} s: the recording goes on",
                path.display(),
                after.as_secs_f64()
            ),
            Self::ChunkFinished(path) => write!(f, "{} is finished", path.display()),
            Self::ChunkRemoved(path) => write!(f, "{} was removed, as the oldest", path.display()),
            Self::SizeLimitReached { path, limit } => write!(
                f,
                "{} has {limit} bytes, which is as many as there may be: the recording ends",
                path.display()
            ),
            Self::ChunkNotRemoved(error) => {
                write!(f, "an old chunk is not removed: {error}: {}", error.source)
            }
            Self::ChunkNotStarted(error) => write!(
                f,
                "no new chunk is begun: {error}: {} (the one that is written goes on)",
                error.source
            ),
            Self::Relay(event) => event.fmt(f),
            Self::ChunkNotFinished { path, why } => {
                write!(f, "\"{}\" cannot be finished yet: {why}", path.display())
            }
        }
    }
}

/// Whether a write failed because of a full disk, quota or file size limit, which may be temporary.
pub(super) fn is_disk_full(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    )
}

/// The state while the disk is full.
#[derive(Debug)]
struct DiskFull {
    since: Instant,
    tried: Instant,
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// Number of new consumer files.
    pub(super) files: usize,
    pub(super) progress: Progress,
}

/// Files and directories that could not be opened, with their errors.
#[derive(Debug, Default)]
struct OpenFailures(BTreeMap<String, io::Error>);

impl OpenFailures {
    /// Adds an error. A file that has disappeared belonged to a process that ended with nothing to
    /// read: the kernel keeps files with unconsumed data.
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
    /// The processes to record; `None` for all.
    pid_filter: Option<PidFilter>,
    limits: Limits,
    in_chunks: bool,
    /// The chunk is to end in the next round.
    pub(super) rotates_now: bool,
    /// Start of the current chunk.
    begun: Instant,
    meter: SizeMeter,
    /// The recording has reached its maximum size.
    pub(super) is_too_large: bool,
    full: Option<DiskFull>,
    /// Some files may not have been reported by inotify, or were not opened. Scan all directories.
    must_scan: bool,
    /// Retried with each scan; reported at the end of the recording.
    open_failures: OpenFailures,
    events: Vec<RecorderEvent>,
    /// Sends what is written to a relay.
    pub(super) relay: Option<RelaySender>,
}

impl TraceRecorder {
    /// Records a trace, in chunks if the session has them. The set of channels must be final.
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
            // inotify does not report files that existed before.
            must_scan: true,
            open_failures: OpenFailures::default(),
            events: Vec::new(),
            relay: None,
        })
    }

    /// Records a trace to a new or existing recording in `output`.
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

    /// The descriptor that is readable when there are new files.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.watch.inotify.as_fd()
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<RecorderEvent> {
        let mut events = std::mem::take(&mut self.events);
        let relay = self.relay.as_ref();
        let of_relay = relay.map(RelaySender::take_events).unwrap_or_default();
        events.extend(of_relay.into_iter().map(RecorderEvent::Relay));
        events
    }

    /// Whether all processes have ended, if only some are recorded.
    pub(super) fn all_ended(&self) -> Result<bool, RecordError> {
        let ended = self
            .pid_filter
            .as_ref()
            .map_or(Ok(false), PidFilter::all_ended);
        ended.map_err(system("look at processes"))
    }

    /// Whether the disk was full in the last attempt.
    pub(super) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Opens new consumer files, or all with `all`, and drains the rings. While the disk is full,
    /// retries once a second, or immediately with `insist`.
    pub(super) fn round(&mut self, all: bool, insist: bool) -> Result<Round, RecordError> {
        let waits = |full: &DiskFull| full.tried.elapsed() < RETRY_FULL && !insist;
        if self.full.as_ref().is_some_and(waits) {
            return Ok(Round::default());
        }
        let relay = self.relay.as_mut().filter(|_| !insist);
        // If the directory cannot be read, the round fails.
        let is_held = relay.is_some_and(|relay| relay.is_full().unwrap_or(false));
        let round = self.try_round(all, is_held);
        self.unless_full(round)
    }

    /// Passes a result on; turns an error about a full disk into an event and a default result.
    fn unless_full<T: Default>(
        &mut self,
        result: Result<T, SessionError>,
    ) -> Result<T, RecordError> {
        let now = Instant::now();
        match result {
            Ok(done) => {
                if let Some(full) = self.full.take() {
                    self.events.push(RecorderEvent::SpaceAvailable {
                        path: self.output.clone(),
                        after: full.since.elapsed(),
                    });
                }
                Ok(done)
            }
            Err(SessionError::Write(error)) if is_disk_full(&error) => {
                match &mut self.full {
                    Some(full) => full.tried = now,
                    none => {
                        *none = Some(DiskFull {
                            since: now,
                            tried: now,
                        });
                        self.events.push(RecorderEvent::DiskFull {
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

    /// `is_held`: the events are to stay in the rings.
    fn try_round(&mut self, all: bool, is_held: bool) -> Result<Round, SessionError> {
        // Before new files are looked for: a process that has none yet writes later.
        let times = Times::now();
        let files = self.take_files(all)?;
        let progress = match is_held {
            true => Progress::default(),
            false => self.session.drain(false, Instant::now())?,
        };
        if let Some(relay) = self.relay.as_ref().filter(|of| of.is_live())
            && !is_held
            && self.session.unwritten() == (0, 0)
            // The rings of a process whose file cannot be opened have not been read.
            && self.open_failures.0.is_empty()
        {
            relay.confirm(times);
        }
        self.meter.add(progress.bytes);
        self.keep_limits()?;
        Ok(Round { files, progress })
    }

    /// Ends the chunk if it is due, and enforces the maximum size.
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
                self.events
                    .push(RecorderEvent::SizeLimitReached { path, limit });
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
        self.events
            .extend(finished.map(RecorderEvent::ChunkFinished));
        (self.begun, self.meter, self.rotates_now) = (Instant::now(), SizeMeter::NEW, false);
        self.remove_old();
        Ok(())
    }

    /// Removes the oldest chunks that exceed the limits.
    pub(super) fn remove_old(&mut self) {
        remove_old(&self.output, &self.limits, &mut self.events);
    }

    /// Opens the consumer files that inotify reported, or all. Returns how many are new.
    fn take_files(&mut self, all: bool) -> Result<usize, SessionError> {
        let files = match self.watch.new_files() {
            Ok(Some(files)) if !all && !self.must_scan => files,
            // The inotify queue overflowed, or files were not opened last time.
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
            // Descriptions are read, but never consumed.
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

    /// Removes the state of processes that the kernel no longer knows.
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

    /// Ends the recording. Returns `None` if the disk is too full for the rest.
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
        self.events
            .extend(finished.map(RecorderEvent::ChunkFinished));
        // Before the checkpoint is removed, whose directory this needs.
        self.remove_old();
        self.session.finish()
    }

    /// Completes the files so that they are readable, and keeps the recording for a later one to
    /// continue.
    pub(super) fn suspend(&mut self) -> Result<(), RecordError> {
        self.round(false, true)?;
        let completed = self.session.complete();
        self.unless_full(completed)
    }

    /// The error for data that is in no file because the disk is full.
    pub(super) fn disk_full(&self) -> RecordError {
        let (processes, bytes) = self.session.unwritten();
        RecordError::DiskFull {
            path: self.output.clone(),
            processes,
            bytes,
        }
    }
}

/// Removes the oldest chunks that exceed the limits.
pub(super) fn remove_old(output: &Path, limits: &Limits, events: &mut Vec<RecorderEvent>) {
    let removed = try_remove_old(output, limits, events);
    if let Err(error) = removed.map_err(OutputError::at(output)) {
        events.push(RecorderEvent::ChunkNotRemoved(error));
    }
}

fn try_remove_old(
    output: &Path,
    limits: &Limits,
    events: &mut Vec<RecorderEvent>,
) -> io::Result<()> {
    if limits.keep.is_none() && limits.max_size.is_none() {
        return Ok(());
    }
    let chunks = finished_chunks(output)?;
    let sizes: io::Result<Vec<u64>> = chunks.iter().map(|chunk| chunks::size(chunk)).collect();
    let sizes = sizes?;
    // Leave room for the current chunk.
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
        events.push(RecorderEvent::ChunkRemoved(chunk.clone()));
        left -= 1;
        bytes -= size;
    }
    Ok(())
}

/// Watches the channels' directories for new consumer files (C4).
#[derive(Debug)]
struct Watch {
    inotify: Inotify,
    channels: Vec<(WatchDescriptor, String)>,
}

impl Watch {
    /// Watches the channel `control`, and the named event channels.
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

    /// The files that were created since the last call. Returns `None` if the queue overflowed.
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
    fn vanished_file_is_no_problem() {
        let mut open_failures = OpenFailures::default();
        let error = |kind| io::Error::from(kind);
        open_failures.add("control/1.2".into(), error(io::ErrorKind::NotFound));
        open_failures.add("main/1.2".into(), error(io::ErrorKind::PermissionDenied));
        open_failures.add("main/3.4".into(), error(io::ErrorKind::PermissionDenied));
        // The process has ended since.
        open_failures.add("main/3.4".into(), error(io::ErrorKind::NotFound));
        let files: Vec<_> = open_failures.0.keys().collect();
        assert_eq!(files, ["main/1.2"]);
    }
}
