//! The recording service: records all or some traces as they appear and disappear.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;
use usertrace_ctf::ProcessSummary;
use usertrace_ctf::recording::RecordingNote;

use super::control_fs::consumer_files;
use super::error::{OutputError, RecordError, system};
use super::record::{LINGER, PROGRESS_INTERVAL, WAIT, next_wait};
use super::recorder::TraceRecorder;
use super::relay::{RelayOptions, RelaySender, SpoolWriter};
use super::signals::{ReceivedSignal, Signals};
use super::trigger_event::TriggerEvent;
use super::trigger_watch::{TriggerOptions, TriggerWatch, WatchError};
use super::triggers::{WaitOutcome, revents};
use super::{
    CONTROL, ControlFs, ControlFsError, Limits, MAIN, RecorderEvent, RecordingProgress,
    SessionSummary, TraceDir, close_recording, describe,
};

/// How long to wait before retrying a trace that cannot be recorded.
const RETRY: Duration = Duration::from_secs(10);
/// How often to remove the state of processes that have ended.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// What to record.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// The mount point of the control file system.
    pub root: PathBuf,
    /// Names of the traces; if empty, all traces, now and later.
    pub traces: Vec<String>,
    /// The output directory, in which each trace has a directory of its name, with chunks.
    pub output: PathBuf,
    /// Whether to record. Otherwise, only triggers are answered.
    pub records: bool,
    /// What to do when triggers fire.
    pub triggers: TriggerOptions,
    /// When chunks end, and the maximum size of each trace.
    pub limits: Limits,
    /// The relay to send the traces to, if any. Chunks that were sent are removed.
    pub relay: Option<RelayOptions>,
}

impl DaemonOptions {
    fn limits(&self) -> Limits {
        let relay = self.relay.as_ref();
        relay.map_or(self.limits, |relay| relay.limits(self.limits))
    }
}

/// Notifications of the service to its caller.
#[derive(Debug)]
#[non_exhaustive]
pub enum DaemonNotification<'a> {
    /// The first scan for traces is done, and existing traces are recorded. Repeated after each
    /// reload.
    Ready,
    /// SIGHUP requests new chunks.
    Reloading,
    /// A signal requests the end of the service.
    Stopping,
    /// The recording of a trace starts.
    Started {
        /// Its name.
        trace: &'a str,
        /// The directory of the recording.
        directory: &'a Path,
    },
    /// An event of the recording, such as a full disk.
    RecorderEvent {
        /// The trace's name.
        trace: &'a str,
        /// The event.
        event: &'a RecorderEvent,
    },
    /// Triggers of a trace asked for an action.
    Trigger {
        /// The trace's name.
        trace: &'a str,
        /// What became of it.
        event: &'a TriggerEvent,
    },
    /// A trace was removed, and recorded completely.
    Ended {
        /// Its name.
        trace: &'a str,
        /// Statistics of the trace.
        progress: &'a RecordingProgress,
    },
    /// A process cannot be recorded correctly.
    Problem {
        /// The trace's name.
        trace: &'a str,
        /// The description of the problem.
        problem: &'a str,
    },
    /// A trace cannot be recorded. The service will retry.
    Failed {
        /// Its name.
        trace: &'a str,
        /// The error.
        error: &'a RecordError,
    },
    /// Statistics, once a second.
    RecordingProgress {
        /// Number of traces being recorded.
        traces: usize,
        /// Statistics of all traces.
        progress: &'a RecordingProgress,
    },
}

/// The recording of one trace.
struct Recording {
    recorder: TraceRecorder,
    /// Distinguishes the trace from a later one of the same name.
    inode: u64,
    /// Statistics of processes that have ended.
    ended: RecordingProgress,
    /// Set after the trace was removed: the last time that data arrived.
    quiet: Option<Instant>,
}

impl Recording {
    fn progress(&self) -> RecordingProgress {
        let mut progress = self.recorder.session.progress();
        add(&mut progress, &self.ended);
        progress
    }

    /// Adds the processes that have ended to the sum, and forgets them. Returns their problems.
    fn fold(&mut self) -> Vec<String> {
        let SessionSummary {
            processes,
            problems,
        } = self.recorder.session.take_summary();
        self.fold_processes(&processes);
        problems
    }

    fn fold_processes(&mut self, processes: &[ProcessSummary]) {
        for process in processes {
            let of = RecordingProgress {
                processes: 0,
                events: process.events,
                bytes: process.bytes,
                lost: process.least_lost(),
            };
            add(&mut self.ended, &of);
        }
    }
}

fn add(sum: &mut RecordingProgress, of: &RecordingProgress) {
    sum.processes += of.processes;
    sum.events += of.events;
    sum.bytes += of.bytes;
    sum.lost = sum.lost.saturating_add(of.lost);
}

struct Daemon<'a> {
    options: &'a DaemonOptions,
    control_fs: ControlFs,
    recordings: BTreeMap<String, Recording>,
    /// The traces whose triggers are answered.
    watches: BTreeMap<String, TriggerWatch>,
    /// Traces whose triggers cannot be followed, which was reported.
    unwatched: BTreeSet<String>,
    /// Traces that cannot be recorded, with the time and the text of the last error.
    failed: BTreeMap<String, (Instant, String)>,
    /// Statistics of recordings that have ended.
    ended: RecordingProgress,
    /// Recordings that have ended, of which a part waits for the relay.
    leaving: BTreeMap<String, RelaySender>,
    notify: &'a mut dyn FnMut(DaemonNotification<'_>),
}

/// Records traces as they appear, until SIGTERM or SIGINT. The traces stay active then: their
/// events remain in the rings until the next daemon reads these, to the same directory, without
/// loss or duplicates. The same holds if this daemon is killed. SIGHUP starts a new chunk of each
/// trace. Call this in a process with one thread, as it blocks signals.
///
/// # Errors
/// If there is no control file system, or the output directory cannot be written. An error about
/// one trace is only reported, and the trace is retried.
pub fn daemon(
    options: &DaemonOptions,
    notify: &mut dyn FnMut(DaemonNotification<'_>),
) -> Result<RecordingProgress, RecordError> {
    let control_fs = ControlFs::open(&options.root)?;
    let output_error = OutputError::at(&options.output);
    fs::create_dir_all(&options.output).map_err(&output_error)?;
    let signals = Signals::new().map_err(system("take signals"))?;
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
        .map_err(system("watch for traces"))?;
    let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_ONLYDIR;
    inotify
        .add_watch(&options.root, flags)
        .map_err(system("watch for traces"))?;
    let mut daemon = Daemon {
        options,
        control_fs,
        recordings: BTreeMap::new(),
        watches: BTreeMap::new(),
        unwatched: BTreeSet::new(),
        failed: BTreeMap::new(),
        ended: RecordingProgress::default(),
        leaving: BTreeMap::new(),
        notify,
    };
    daemon.close_stale()?;
    daemon.scan_traces()?;
    daemon.round();
    daemon.follow_triggers();
    (daemon.notify)(DaemonNotification::Ready);
    let (mut reported, mut swept) = (Instant::now(), Instant::now());
    let mut wait = *WAIT.start();
    loop {
        daemon.wait(&signals, &inotify, wait)?;
        while let Some(received) = signals.next().map_err(system("read a signal"))? {
            match received {
                ReceivedSignal::Forward {
                    signal: Signal::SIGTERM | Signal::SIGINT,
                    ..
                } => return Ok(daemon.detach()),
                ReceivedSignal::Forward {
                    signal: Signal::SIGHUP,
                    ..
                } => daemon.reload()?,
                ReceivedSignal::Forward { .. } | ReceivedSignal::Child => {}
            }
        }
        let mut must_scan = reported.elapsed() >= PROGRESS_INTERVAL;
        loop {
            match inotify.read_events() {
                Ok(_) => must_scan = true,
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        if must_scan {
            daemon.scan_traces()?;
        }
        let fill = daemon.round();
        daemon.follow_triggers();
        if reported.elapsed() >= PROGRESS_INTERVAL {
            let progress = daemon.progress();
            let traces = daemon.recordings.len();
            (daemon.notify)(DaemonNotification::RecordingProgress {
                traces,
                progress: &progress,
            });
            reported = Instant::now();
        }
        if swept.elapsed() >= SWEEP_INTERVAL {
            daemon.sweep();
            swept = Instant::now();
        }
        wait = next_wait(wait, fill);
        // No ring can fill up, so wait for new traces.
        if daemon.recordings.is_empty() {
            wait = PROGRESS_INTERVAL.as_millis() as u64;
        }
    }
}

impl Daemon<'_> {
    fn wait(&mut self, signals: &Signals, inotify: &Inotify, ms: u64) -> Result<(), RecordError> {
        let watched = |fd| PollFd::new(fd, PollFlags::POLLIN);
        // Triggers come first, so that their results are at the beginning.
        let triggers = self.watches.values().filter_map(TriggerWatch::watched);
        let mut fds: Vec<_> = triggers.map(watched).collect();
        let nr_triggers = fds.len();
        fds.extend([signals.as_fd(), inotify.as_fd()].map(watched));
        let recordings = self.recordings.values();
        fds.extend(recordings.map(|of| watched(of.recorder.watched())));
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(system("wait")(error)),
        }
        let outcomes: Vec<Option<WaitOutcome>> = fds[..nr_triggers].iter().map(revents).collect();
        let watches = self.watches.values_mut();
        let watches = watches.filter(|watch| watch.watched().is_some());
        for (watch, outcome) in watches.zip(outcomes) {
            outcome
                .into_iter()
                .for_each(|outcome| watch.polled(outcome));
        }
        Ok(())
    }

    /// Names of the existing traces that are to be recorded.
    fn traces(&self) -> Result<Vec<String>, RecordError> {
        let there = self.control_fs.traces()?;
        let names = there.iter().filter_map(|path| path.file_name()?.to_str());
        let wanted = &self.options.traces;
        let is_wanted = |name: &&str| wanted.is_empty() || wanted.iter().any(|of| of == name);
        Ok(names.filter(is_wanted).map(str::to_owned).collect())
    }

    fn directory(&self, trace: &str) -> PathBuf {
        self.options.output.join(trace)
    }

    /// Completes recordings of traces that no longer exist, for example after a reboot.
    fn close_stale(&mut self) -> Result<(), OutputError> {
        let output_error = OutputError::at(&self.options.output);
        for entry in fs::read_dir(&self.options.output).map_err(&output_error)? {
            let entry = entry.map_err(&output_error)?;
            let (path, name) = (entry.path(), entry.file_name().into_string());
            let Ok(name) = name else { continue };
            let is_wanted = self.options.traces.is_empty() || self.options.traces.contains(&name);
            let is_gone = || {
                let trace = self.control_fs.trace(&name);
                matches!(trace, Err(ControlFsError::NoTrace(_)))
            };
            if !is_wanted || !path.is_dir() || !is_gone() {
                continue;
            }
            if let Err(error) = close_recording(&path).map_err(OutputError::at(&path)) {
                // The recording stays as readable as it was.
                let (trace, error) = (&name[..], &error.into());
                (self.notify)(DaemonNotification::Failed { trace, error });
            }
            if RelaySender::is_wanted(&path)
                && let Some(sender) = self.start_relay(&name).map_err(OutputError::at(&path))?
            {
                sender.close();
                self.leaving.insert(name, sender);
            }
        }
        Ok(())
    }

    /// Starts to send the recording of a trace, if requested.
    fn start_relay(&self, trace: &str) -> io::Result<Option<RelaySender>> {
        let start = |relay: &RelayOptions| {
            let writer = SpoolWriter::Recorder;
            RelaySender::start(&self.directory(trace), trace, relay, writer)
        };
        self.options.relay.as_ref().map(start).transpose()
    }

    /// Starts the recording of new traces, and marks those that were removed.
    fn scan_traces(&mut self) -> Result<(), RecordError> {
        for recording in self.recordings.values_mut() {
            let path = recording.recorder.trace.path();
            let is_there = fs::metadata(path).is_ok_and(|file| file.ino() == recording.inode);
            if !is_there && recording.quiet.is_none() {
                recording.quiet = Some(Instant::now());
            }
        }
        let names = self.traces()?;
        let is_there: BTreeSet<&String> = names.iter().collect();
        self.failed.retain(|name, _| is_there.contains(name));
        self.unwatched.retain(|name| is_there.contains(name));
        self.scan_triggers(&names);
        let recorded = match self.options.records {
            true => &names[..],
            false => &[],
        };
        for name in recorded {
            let waits = |(since, _): &(Instant, String)| since.elapsed() < RETRY;
            if self.recordings.contains_key(name) || self.failed.get(name).is_some_and(waits) {
                continue;
            }
            match self.open(name) {
                Ok(None) => {}
                Ok(Some(recording)) => {
                    self.failed.remove(name);
                    (self.notify)(DaemonNotification::Started {
                        trace: name,
                        directory: &recording.recorder.output,
                    });
                    self.recordings.insert(name.clone(), recording);
                }
                Err(error) => self.report_failure(name, &error),
            }
        }
        Ok(())
    }

    /// Follows the triggers of new traces, and forgets those of traces that were removed.
    fn scan_triggers(&mut self, names: &[String]) {
        let watches = self.watches.iter();
        let gone = watches.filter(|(_, watch)| watch.is_gone());
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(mut watch) = self.watches.remove(&name) {
                watch.report_removal();
                report_triggers(self.notify, &name, &mut watch);
            }
        }
        for name in names {
            if self.watches.contains_key(name) {
                continue;
            }
            let trace = self.control_fs.trace(name).map_err(WatchError::from);
            match trace.and_then(|trace| TriggerWatch::open(trace, &self.options.output)) {
                Ok(watch) => {
                    self.unwatched.remove(name);
                    self.watches.insert(name.clone(), watch);
                }
                // The trace was removed meanwhile, or the kernel has no triggers.
                Err(error) if error.is_missing() => {}
                Err(error) => {
                    if self.unwatched.insert(name.clone()) {
                        let problem =
                            &format!("its triggers are not followed: {}", describe(&error));
                        (self.notify)(DaemonNotification::Problem {
                            trace: name,
                            problem,
                        });
                    }
                }
            }
        }
    }

    /// Does what triggers ask for.
    fn follow_triggers(&mut self) {
        for (name, watch) in &mut self.watches {
            let recording = self.recordings.get_mut(name);
            let end_chunk = || {
                let recorder = recording.map(|recording| &mut recording.recorder.rotates_now);
                // The next round reads what led to this, and then ends the chunk.
                recorder.map(|rotates_now| *rotates_now = true).is_some()
            };
            watch.follow(&self.control_fs, &self.options.triggers, end_chunk);
            report_triggers(self.notify, name, watch);
        }
    }

    /// Starts to record a trace. Returns `None` before the trace was started: it may still get
    /// channels. So it does while the relay does not have an earlier trace of that name: events
    /// stay in the rings.
    fn open(&self, name: &str) -> Result<Option<Recording>, RecordError> {
        let trace = self.control_fs.trace(name)?;
        if !is_started(&trace) || self.leaving.contains_key(name) {
            return Ok(None);
        }
        let output = self.directory(name);
        let output_error = OutputError::at(&output);
        fs::create_dir_all(&output).map_err(&output_error)?;
        let inode = fs::metadata(trace.path()).map_or(0, |file| file.ino());
        let recorded = trace.recorded()?;
        let before = RecordingNote::of(&output).map_err(&output_error)?;
        if before.is_some_and(|before| !before.is_same(&recorded)) {
            close_recording(&output).map_err(&output_error)?;
        }
        let mut recorder = TraceRecorder::open(trace, &output, None, self.options.limits(), true)?;
        recorder.relay = self.start_relay(name).map_err(&output_error)?;
        Ok(Some(Recording {
            recorder,
            inode,
            ended: RecordingProgress::default(),
            quiet: None,
        }))
    }

    /// Reports that a trace cannot be recorded, once for each distinct error.
    fn report_failure(&mut self, name: &str, error: &RecordError) {
        let why = format!("{error:?}");
        let before = self
            .failed
            .insert(name.to_owned(), (Instant::now(), why.clone()));
        if before.is_none_or(|(_, before)| before != why) {
            (self.notify)(DaemonNotification::Failed { trace: name, error });
        }
    }

    /// Drains all traces. Returns the fill level of the fullest ring, in 1/1000.
    fn round(&mut self) -> u64 {
        let mut fill = 0;
        let (mut failed, mut over) = (Vec::new(), Vec::new());
        for (name, recording) in &mut self.recordings {
            let is_gone = recording.quiet.is_some();
            let round = recording.recorder.round(is_gone, false);
            for event in recording.recorder.take_events() {
                (self.notify)(DaemonNotification::RecorderEvent {
                    trace: name,
                    event: &event,
                });
            }
            for problem in recording.fold() {
                (self.notify)(DaemonNotification::Problem {
                    trace: name,
                    problem: &problem,
                });
            }
            match round {
                Ok(round) => {
                    fill = fill.max(round.progress.fill);
                    if is_gone && (round.files > 0 || round.progress.bytes > 0) {
                        recording.quiet = Some(Instant::now());
                    }
                }
                Err(error) => failed.push((name.clone(), error)),
            }
            if recording
                .quiet
                .is_some_and(|since| since.elapsed() >= LINGER)
                && !recording.recorder.is_full()
            {
                over.push(name.clone());
            }
        }
        for (name, error) in failed {
            self.drop_failed(&name, &error);
        }
        for name in over {
            self.end(&name);
        }
        self.follow_leaving();
        fill
    }

    /// Follows the sending of recordings that have ended.
    fn follow_leaving(&mut self) {
        let notify = &mut self.notify;
        self.leaving.retain(|name, sender| {
            let is_finished = sender.is_finished();
            for event in sender.take_events() {
                let event = &RecorderEvent::Relay(event);
                notify(DaemonNotification::RecorderEvent { trace: name, event });
            }
            !is_finished
        });
    }

    /// Completes the recording of a trace that was removed and read completely.
    fn end(&mut self, name: &str) {
        let Some(recording) = self.recordings.get_mut(name) else {
            return;
        };
        let finished = recording.recorder.finish();
        for event in recording.recorder.take_events() {
            (self.notify)(DaemonNotification::RecorderEvent {
                trace: name,
                event: &event,
            });
        }
        match finished {
            // The disk is full; retry in the next round.
            Ok(None) => {}
            Ok(Some(summary)) => {
                recording.fold_processes(&summary.processes);
                let progress = recording.progress();
                if let Some(sender) = recording.recorder.relay.take() {
                    sender.close();
                    self.leaving.insert(name.to_owned(), sender);
                }
                add(&mut self.ended, &progress);
                self.recordings.remove(name);
                (self.notify)(DaemonNotification::Ended {
                    trace: name,
                    progress: &progress,
                });
            }
            Err(error) => self.drop_failed(name, &error),
        }
    }

    /// Ends the recording of a trace after an error. The checkpoint keeps the statistics of
    /// processes that continue.
    fn drop_failed(&mut self, name: &str, error: &RecordError) {
        if let Some(recording) = self.recordings.remove(name) {
            add(&mut self.ended, &recording.ended);
        }
        self.report_failure(name, error);
    }

    /// Starts new chunks, as SIGHUP requests.
    fn reload(&mut self) -> Result<(), RecordError> {
        (self.notify)(DaemonNotification::Reloading);
        for recording in self.recordings.values_mut() {
            recording.recorder.rotates_now = true;
        }
        self.failed.clear();
        self.scan_traces()?;
        self.round();
        (self.notify)(DaemonNotification::Ready);
        Ok(())
    }

    /// Removes the state of processes that have ended.
    fn sweep(&mut self) {
        let mut failed = Vec::new();
        for (name, recording) in &mut self.recordings {
            if let Err(error) = recording.recorder.forget() {
                failed.push((name.clone(), error));
            }
        }
        for (name, error) in failed {
            self.drop_failed(&name, &error);
        }
    }

    fn progress(&self) -> RecordingProgress {
        let mut sum = self.ended;
        for recording in self.recordings.values() {
            add(&mut sum, &recording.progress());
        }
        sum
    }

    /// Ends the service. The next daemon continues the recordings.
    fn detach(mut self) -> RecordingProgress {
        (self.notify)(DaemonNotification::Stopping);
        for (name, watch) in &mut self.watches {
            watch.end();
            report_triggers(self.notify, name, watch);
        }
        for (name, recording) in &mut self.recordings {
            let mut left = recording.recorder.suspend();
            for event in recording.recorder.take_events() {
                (self.notify)(DaemonNotification::RecorderEvent {
                    trace: name,
                    event: &event,
                });
            }
            if left.is_ok() && recording.recorder.is_full() {
                left = Err(recording.recorder.disk_full());
            }
            if let Err(error) = &left {
                (self.notify)(DaemonNotification::Failed { trace: name, error });
            }
        }
        self.progress()
    }
}

/// Reports what became of the actions that triggers of a trace asked for.
fn report_triggers(
    notify: &mut dyn FnMut(DaemonNotification<'_>),
    trace: &str,
    watch: &mut TriggerWatch,
) {
    let events = watch.take_events();
    for event in &events.triggers {
        notify(DaemonNotification::Trigger { trace, event });
    }
    for event in &events.removed {
        notify(DaemonNotification::RecorderEvent { trace, event });
    }
    for problem in &events.problems {
        notify(DaemonNotification::Problem { trace, problem });
    }
}

/// Whether the trace was ever started, even if it is stopped now. Then its set of channels is
/// final.
fn is_started(trace: &TraceDir) -> bool {
    let is_one = |file: &str| {
        let text = fs::read_to_string(trace.path().join(file));
        text.is_ok_and(|text| text.trim() == "1")
    };
    let has_files = |channel: &str| {
        let files = consumer_files(&trace.channel(channel));
        files.is_ok_and(|files| !files.is_empty())
    };
    is_one("start") || is_one("allocate") || has_files(MAIN) || has_files(CONTROL)
}
