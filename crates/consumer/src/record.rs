//! Running a program and recording it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use usertrace_ctf::Version;
use usertrace_ctf::recording::Recorded;
use usertrace_os::procfs;

use super::checkpoint::{is_empty, remove_if_unused};
use super::error::{OutputError, RecordError, describe, system};
use super::open_files;
use super::pid_filter::PidFilter;
use super::recorder::TraceRecorder;
use super::signals::Signals;
use super::{
    ControlFs, FtraceError, KernelEvents, KernelOptions, KernelSummary, KernelTrace, Limits,
    RecorderEvent, RecordingProgress, Session, SessionSummary, TraceSetup,
};

/// Milliseconds between two looks at the rings: fewest, when they fill fast, and most. In the
/// latter, a program that begins to write 200 MB a second does not fill a ring of the usual size.
pub(super) const WAIT: std::ops::RangeInclusive<u64> = 1..=16;
/// How often to tell how far it is.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How long to look for files of processes that have ended: the kernel makes them a little later.
pub(super) const LINGER: Duration = Duration::from_millis(100);
/// How long to read from processes that go on to write after the trace was stopped.
const STOPPING: Duration = Duration::from_secs(2);

/// What to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the control file system is.
    pub root: PathBuf,
    /// Name of the trace.
    pub trace: String,
    /// What it is to be like.
    pub setup: TraceSetup,
    /// Where to write; must not exist, or be empty, or have a recording of this trace that was
    /// killed.
    pub output: PathBuf,
    /// In which version of CTF.
    pub version: Version,
    /// The program and its arguments; if there is none, all that is traced is recorded until
    /// somebody asks to stop.
    pub program: Vec<OsString>,
    /// What to add to its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Without a program: only these processes, until the last of them ends; all, if none is named.
    pub pids: Vec<u32>,
    /// The kernel's own events that are recorded beside, if there are to be some.
    pub kernel: Option<KernelOptions>,
    /// When chunks end, and how much there may be.
    pub limits: Limits,
}

/// What who waits for a recording is told.
#[derive(Clone, Copy, Debug)]
pub enum Notification<'a> {
    /// How far it is.
    RecordingProgress(&'a RecordingProgress),
    /// Something happened.
    RecorderEvent(&'a RecorderEvent),
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    /// Name of the trace.
    pub trace: String,
    /// Where it is.
    pub directory: PathBuf,
    /// What a shell would call the program's exit status; none if it was left running, 0 if there
    /// is no program.
    pub exit_status: Option<i32>,
    /// Seconds from the program's start to its end.
    pub seconds: f64,
    /// Its processes.
    #[serde(flatten)]
    pub session: SessionSummary,
    /// Processes whose traces could not be written to their end.
    pub incomplete: usize,
    /// The kernel's own events, if they were asked for.
    pub kernel: Option<KernelSummary>,
}

/// Creates a trace, runs a program, records what it and all others write to the trace until it
/// ends, and removes the trace. A trace of that name that is there already is joined: it is started
/// if need be, and in the end stopped, and stays. Where the directory has a recording of this trace
/// that was killed, it goes on with that: with nothing that was consumed missing, and nothing
/// twice. `tell` is called once a second with what there is so far, and when there is news. To be
/// called in a process of one thread, as it takes signals.
///
/// # Errors
/// When that cannot be done, or another program consumes the trace. The program, if it was started,
/// has ended nevertheless, other than when waiting for it fails.
pub fn record(
    options: &Options,
    tell: &mut dyn FnMut(Notification<'_>),
) -> Result<Recording, RecordError> {
    let control_fs = ControlFs::open(&options.root)?;
    let output_error = OutputError::at(&options.output);
    let before = Recorded::of(&options.output).map_err(&output_error)?;
    let created = match before {
        Some(_) => false,
        None => create_output(&options.output).map_err(&output_error)?,
    };
    let recording = record_to(options, &control_fs, before.as_ref(), tell);
    // What there was no room for is to be written yet.
    let is_to_go_on = matches!(recording, Err(RecordError::NoRoom { .. }));
    if recording.is_err() && before.is_none() && !is_to_go_on {
        // If nothing was recorded.
        remove_if_unused(&options.output);
        if created {
            let _ = fs::remove_dir(&options.output);
        }
    }
    recording
}

/// `before`: what was recorded there.
fn record_to(
    options: &Options,
    control_fs: &ControlFs,
    before: Option<&Recorded>,
    tell: &mut dyn FnMut(Notification<'_>),
) -> Result<Recording, RecordError> {
    let only = match &options.pids[..] {
        [] => None,
        pids => {
            let no_process = |(pid, source)| RecordError::NoProcess { pid, source };
            Some(PidFilter::new(pids).map_err(no_process)?)
        }
    };
    let signals = Signals::new().map_err(system("take signals"))?;
    // It was started, and its channels are fixed.
    let asked = match before {
        Some(_) => &TraceSetup::default(),
        None => &options.setup,
    };
    let trace = control_fs.create(&options.trace, asked)?;
    // First the notes, which another recorder may have.
    let recorded = trace.recorded()?;
    let session = match options.limits.rotates() || Recorded::has_chunks(&options.output) {
        true => Session::open_in_chunks(&options.output, &recorded, procfs::hostname()),
        false => Session::open(&options.output, &recorded, procfs::hostname()),
    };
    let mut session = session.map_err(OutputError::at(&options.output))?;
    session.set_version(options.version);
    let kernel = kernel_events(options, trace.is_monotonic()?)?;
    trace.start()?;
    if let Some(kernel) = &kernel {
        kernel.start()?;
    }
    let recorder = TraceRecorder::new(trace, session, &options.output, only, options.limits)?;
    let mut recorder = Recorder {
        recorder,
        signals,
        kernel,
        adopts: before.is_some_and(|before| before.created),
        failed: None,
    };
    recorder.recorder.round(true, false)?;
    recorder.tell_news(tell);

    let started = Instant::now();
    let mut child = match options.program.split_first() {
        None => None,
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            let environment = options.environment.iter();
            command.envs(environment.map(|(name, value)| (name, value)));
            recorder.signals.restore_mask_in(&mut command);
            open_files::restore_limit_in(&mut command);
            let child = command.spawn().map_err(|source| RecordError::Program {
                program: program.to_string_lossy().into_owned(),
                source,
            })?;
            Some(child)
        }
    };
    let status = recorder.run(child.as_mut(), tell)?;
    let seconds = started.elapsed().as_secs_f64();
    let (session, kernel) = recorder.stop(tell)?;
    Ok(Recording {
        trace: options.trace.clone(),
        directory: options.output.clone(),
        exit_status: match child {
            None => Some(0),
            Some(_) => status.map(exit_status),
        },
        seconds,
        session,
        // What there is no room for is an error.
        incomplete: 0,
        kernel,
    })
}

/// The kernel's own events, ready to be recorded, if they are to be. `is_monotonic`: the clock of
/// the traces is `CLOCK_MONOTONIC`.
pub(super) fn kernel_events(
    options: &Options,
    is_monotonic: bool,
) -> Result<Option<KernelEvents>, FtraceError> {
    let Some(kernel) = &options.kernel else {
        return Ok(None);
    };
    if options.limits.rotates() {
        return Err(FtraceError::InChunks);
    }
    let hostname = procfs::hostname();
    let to = KernelTrace {
        name: &options.trace,
        pids: &options.pids,
        output: &options.output,
        hostname: hostname.as_deref(),
        version: options.version,
        is_monotonic,
    };
    KernelEvents::new(kernel, &to).map(Some)
}

/// The directory, which must be new, or empty: traces in it would be read together. Is it new?
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

/// As a shell says it.
pub(super) fn exit_status(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal)
}

struct Recorder {
    recorder: TraceRecorder,
    signals: Signals,
    /// The kernel's own events, if they are recorded too.
    kernel: Option<KernelEvents>,
    /// The trace was created to be recorded, by one that was killed.
    adopts: bool,
    /// Why nothing is recorded any more.
    failed: Option<RecordError>,
}

impl Recorder {
    /// Records until the program ends, or until somebody insists to stop. None: it still runs. When
    /// recording fails, the program goes on nevertheless, and who waits for it waits for its end.
    /// Without a program, records until somebody asks to stop, or removes the trace, or the last of
    /// the processes ends that are recorded.
    fn run(
        &mut self,
        mut child: Option<&mut Child>,
        tell: &mut dyn FnMut(Notification<'_>),
    ) -> Result<Option<ExitStatus>, RecordError> {
        let mut told = Instant::now();
        let mut wait = *WAIT.start();
        let mut asked = false;
        loop {
            self.wait(wait)?;
            while let Some(received) = self.signals.next().map_err(system("read a signal"))? {
                if let Some(child) = &child {
                    received.forward_to(child);
                }
                if received.asks_to_stop() {
                    if asked || child.is_none() {
                        return Ok(None);
                    }
                    asked = true;
                }
            }
            let status = match &mut child {
                Some(child) => child.try_wait().map_err(system("wait for the program"))?,
                None => None,
            };
            let mut fill = 0;
            if self.failed.is_none() {
                let was_too_large = self.recorder.is_too_large;
                match self.recorder.round(false, false) {
                    Ok(round) => fill = round.progress.fill,
                    Err(error) => {
                        // The first error is the one to tell. A trace that another program consumes
                        // is not this one's.
                        if !matches!(error, RecordError::Busy { .. }) {
                            let _ = self.recorder.trace.stop();
                        }
                        self.failed = Some(error);
                    }
                }
                if self.recorder.is_too_large && !was_too_large {
                    // What is in the rings comes yet, and nothing else.
                    let _ = self.recorder.trace.stop();
                }
                self.share_clock();
                self.tell_news(tell);
            }
            let is_over = child.is_none()
                && (self.failed.is_some()
                    || self.recorder.is_too_large
                    || !self.recorder.trace.path().exists()
                    || self.recorder.all_ended()?);
            if status.is_some() || is_over {
                return Ok(status);
            }
            if told.elapsed() >= PROGRESS_INTERVAL {
                tell(Notification::RecordingProgress(
                    &self.recorder.session.so_far(),
                ));
                told = Instant::now();
            }
            // Often enough that a ring gets no fuller than a quarter, and no more often than that
            // takes.
            wait = match fill {
                250.. => *WAIT.start(),
                62..250 => wait,
                _ => wait * 2,
            };
            wait = wait.clamp(*WAIT.start(), *WAIT.end());
        }
    }

    fn tell_news(&mut self, tell: &mut dyn FnMut(Notification<'_>)) {
        for news in self.recorder.take_news() {
            tell(Notification::RecorderEvent(&news));
        }
    }

    /// Stops the trace, and reads what is left of it.
    fn stop(
        mut self,
        tell: &mut dyn FnMut(Notification<'_>),
    ) -> Result<(SessionSummary, Option<KernelSummary>), RecordError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // What was recorded is written in any case.
        let stopped = self.recorder.trace.stop();
        if let Some(kernel) = &self.kernel {
            kernel.stop()?;
        }
        let started = Instant::now();
        let mut quiet = Instant::now();
        // Until nothing came for some time: files of processes that have just ended, or events of
        // such that have not seen yet that the trace was stopped.
        while quiet.elapsed() < LINGER && started.elapsed() < STOPPING {
            self.wait(*WAIT.start() * 5)?;
            // Whoever asks to stop gets that.
            while self
                .signals
                .next()
                .map_err(system("read a signal"))?
                .is_some()
            {}
            let round = self.recorder.round(true, false)?;
            self.share_clock();
            self.tell_news(tell);
            if round.files > 0 || round.progress.bytes > 0 {
                quiet = Instant::now();
            }
        }
        // If the disk was full a moment ago, it is looked once more.
        self.recorder.round(true, true)?;
        let finished = match self.recorder.is_full() {
            true => None,
            false => self.recorder.finish()?,
        };
        self.share_clock();
        self.tell_news(tell);
        let Some(mut summary) = finished else {
            // What is in the rings stays there, as if this had been killed.
            self.recorder.trace.keep();
            if let Some(kernel) = self.kernel {
                kernel.keep();
            }
            return Err(self.recorder.no_room());
        };
        if self.adopts {
            self.recorder.trace.adopt();
        }
        // PidFilter now, when its files are closed.
        let TraceRecorder { session, trace, .. } = self.recorder;
        drop(session);
        for result in [stopped, trace.remove()] {
            if let Err(error) = result {
                summary.problems.push(describe(&error));
            }
        }
        let kernel = self.kernel.map(KernelEvents::finish);
        Ok((summary, kernel))
    }

    /// The kernel's events have the clock of the traces, as soon as there is one, and what it is
    /// known to be at the end.
    fn share_clock(&mut self) {
        if let Some(kernel) = &mut self.kernel
            && let Some(clock) = self.recorder.session.clock()
        {
            kernel.set_clock(clock);
        }
    }

    /// Waits for a signal, a new file, or so many milliseconds.
    fn wait(&self, ms: u64) -> Result<(), RecordError> {
        let mut fds = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.recorder.watched(), PollFlags::POLLIN),
        ];
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(system("wait")(error)),
        }
    }
}
