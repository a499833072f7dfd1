//! Running a program and recording it.

use std::collections::BTreeMap;
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
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use super::control_fs::{consumer_files, is_consumer_file};
use super::notes::{forget, is_empty};
use super::only::Only;
use super::signals::{Came, Signals};
use super::{
    CONTROL, ControlFs, ControlFsError, KernelFile, Progress, Recorded, Session, SessionError,
    SessionSummary, SoFar, TraceDir, TraceSetup,
};

/// Milliseconds between two looks at the rings: fewest, when they fill fast, and most. In the latter, a program that
/// begins to write 200 MB a second does not fill a ring of the usual size.
const WAIT: std::ops::RangeInclusive<u64> = 1..=16;
/// How often to tell how far it is.
const TELLING: Duration = Duration::from_secs(1);
/// How long to look for files of processes that have ended: the kernel makes them a little later.
const LINGER: Duration = Duration::from_millis(100);
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
    /// Where to write; must not exist, or be empty, or have a recording of this trace that was killed.
    pub output: PathBuf,
    /// The program and its arguments; if there is none, all that is traced is recorded until somebody asks to stop.
    pub program: Vec<OsString>,
    /// What to add to its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Without a program: only these processes, until the last of them ends; all, if none is named.
    pub pids: Vec<u32>,
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    /// Name of the trace.
    pub trace: String,
    /// Where it is.
    pub directory: PathBuf,
    /// What a shell would call the program's exit status; none if it was left running, 0 if there is no program.
    pub exit_status: Option<i32>,
    /// Seconds from the program's start to its end.
    pub seconds: f64,
    /// Its processes.
    #[serde(flatten)]
    pub session: SessionSummary,
}

/// Why what was recorded is not in its directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {path}")]
pub struct OutputError {
    /// The directory.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl OutputError {
    /// Makes one of what went wrong in `path`.
    pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self {
            path: path.to_owned(),
            source,
        }
    }
}

/// Why nothing, or not everything, was recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no program to run.
    #[error(
        "no program to run: usertrace record -- PROGRAM; without one, what runs is recorded, which takes a kernel that has \
         trace buffers (see usertrace doctor)"
    )]
    NoProgram,
    /// A process that was started without the fallback does not come to it.
    #[error(
        "programs that run already can be recorded only by a kernel that has trace buffers (see usertrace doctor)"
    )]
    RunsAlready,
    /// The control file system.
    #[error(transparent)]
    ControlFs(#[from] ControlFsError),
    /// The directory for the trace.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Another program consumes the trace.
    #[error(
        "another program consumes {path}{}, and what is in a ring is there for one only",
        opened_by(path)
    )]
    Busy {
        /// The file of a process and a channel.
        path: PathBuf,
    },
    /// The program cannot be run.
    #[error("cannot run {program}")]
    Program {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A process that is to be recorded.
    #[error("there is no process {pid} to record")]
    NoProcess {
        /// Its id.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// Something that does not usually fail.
    #[error("cannot {what}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Which other programs have a consumer file open, as far as that can be seen.
fn opened_by(path: &Path) -> String {
    // The file system may be mounted elsewhere, too.
    let is_it =
        |other: &Path| (0..3).all(|n| path.iter().rev().nth(n) == other.iter().rev().nth(n));
    let opens = |process: &Path| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten();
        let mut files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.any(|file| is_it(&file))
    };
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten();
    let mut names: Vec<_> = processes
        .filter_map(|process| {
            let process = process.ok()?;
            let pid = process.file_name().into_string().ok()?;
            let is_other = pid.bytes().all(|b| b.is_ascii_digit()) && pid != own;
            (is_other && opens(&process.path())).then_some(())?;
            let name = fs::read_to_string(process.path().join("comm")).ok()?;
            Some(format!("{} ({pid})", name.trim_end().escape_debug()))
        })
        .collect();
    names.sort();
    if names.is_empty() {
        String::new()
    } else {
        format!(", which is open in {}", names.join(", "))
    }
}

pub(super) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> RecordError {
    move |error| RecordError::System {
        what,
        source: error.into(),
    }
}

/// Creates a trace, runs a program, records what it and all others write to the trace until it ends, and removes the
/// trace. A trace of that name that is there already is joined: it is started if need be, and in the end stopped, and
/// stays. Where the directory has a recording of this trace that was killed, it goes on with that: with nothing that was
/// consumed missing, and nothing twice. `tell` is called once a second with what there is so far. To be called in a process of one thread, as it takes signals.
///
/// # Errors
/// When that cannot be done, or another program consumes the trace. The program, if it was started, has ended nevertheless, other than when waiting for it fails.
pub fn record(options: &Options, tell: &mut dyn FnMut(&SoFar)) -> Result<Recording, RecordError> {
    let control_fs = ControlFs::open(&options.root)?;
    let output_error = OutputError::at(&options.output);
    let before = Recorded::of(&options.output).map_err(&output_error)?;
    let created = match before {
        Some(_) => false,
        None => create_output(&options.output).map_err(&output_error)?,
    };
    let recording = record_to(options, &control_fs, before.as_ref(), tell);
    if recording.is_err() && before.is_none() {
        // If nothing was recorded.
        forget(&options.output);
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
    tell: &mut dyn FnMut(&SoFar),
) -> Result<Recording, RecordError> {
    let only = match &options.pids[..] {
        [] => None,
        pids => {
            let no_process = |(pid, source)| RecordError::NoProcess { pid, source };
            Some(Only::new(pids).map_err(no_process)?)
        }
    };
    let signals = Signals::new().map_err(system("take signals"))?;
    // It was started, and its channels are fixed.
    let asked = match before {
        Some(_) => &TraceSetup::default(),
        None => &options.setup,
    };
    let trace = control_fs.create(&options.trace, asked)?;
    let recorded = trace.recorded()?;
    let mut session = Session::open(&options.output, &recorded, hostname())
        .map_err(OutputError::at(&options.output))?;
    // From here on there will be no other channels.
    trace.start()?;
    let channels = trace.channels()?;
    let watch = Watch::new(&trace, &channels).map_err(system("watch the trace for processes"))?;
    session.set_channels(channels);
    let mut recorder = Recorder {
        session,
        watch,
        trace,
        signals,
        only,
        output: &options.output,
        adopts: before.is_some_and(|before| before.created),
        refused: BTreeMap::new(),
        failed: None,
    };
    // Nobody tells of files that were there before.
    recorder.take_files(true)?;

    let started = Instant::now();
    let mut child = match options.program.split_first() {
        None => None,
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            let environment = options.environment.iter();
            command.envs(environment.map(|(name, value)| (name, value)));
            recorder.signals.not_in(&mut command);
            let child = command.spawn().map_err(|source| RecordError::Program {
                program: program.to_string_lossy().into_owned(),
                source,
            })?;
            Some(child)
        }
    };
    let status = recorder.run(child.as_mut(), tell)?;
    let seconds = started.elapsed().as_secs_f64();
    let session = recorder.stop()?;
    Ok(Recording {
        trace: options.trace.clone(),
        directory: options.output.clone(),
        exit_status: match child {
            None => Some(0),
            Some(_) => status.map(exit_status),
        },
        seconds,
        session,
    })
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

/// The machine's name.
pub(super) fn hostname() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_owned())
}

/// As a shell says it.
pub(super) fn exit_status(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal)
}

fn failed(trace: &TraceDir, output: &Path, error: SessionError) -> RecordError {
    match error {
        SessionError::Write(error) => OutputError::at(output)(error).into(),
        SessionError::Busy { channel, name } => RecordError::Busy {
            path: trace.channel(&channel).join(name),
        },
    }
}

/// An error with what caused it.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

struct Recorder<'a> {
    session: Session<KernelFile>,
    watch: Watch,
    trace: TraceDir,
    signals: Signals,
    /// Whose files are read, if not all.
    only: Option<Only>,
    output: &'a Path,
    /// The trace was created to be recorded, by one that was killed.
    adopts: bool,
    /// Files and directories that could not be opened, and why. They are tried again in the end.
    refused: BTreeMap<String, io::Error>,
    /// Why nothing is recorded any more.
    failed: Option<RecordError>,
}

impl Recorder<'_> {
    /// Records until the program ends, or until somebody insists to stop. None: it still runs. When recording fails,
    /// the program goes on nevertheless, and who waits for it waits for its end. Without a program, records until somebody
    /// asks to stop, or removes the trace, or the last of the processes ends that are recorded.
    fn run(
        &mut self,
        mut child: Option<&mut Child>,
        tell: &mut dyn FnMut(&SoFar),
    ) -> Result<Option<ExitStatus>, RecordError> {
        let mut told = Instant::now();
        let mut wait = *WAIT.start();
        let mut asked = false;
        loop {
            self.wait(wait)?;
            while let Some(came) = self.signals.next().map_err(system("read a signal"))? {
                let Came::Forward {
                    signal,
                    from_terminal,
                } = came
                else {
                    continue;
                };
                if let Some(child) = &child
                    && !from_terminal
                {
                    // That it has ended in the meantime is seen below; its id is not reused before.
                    let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
                }
                if matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP) {
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
                match self.round(false) {
                    Ok((_, progress)) => fill = progress.fill,
                    Err(error) => {
                        // The first error is the one to tell. A trace that another program consumes is not this one's.
                        if !matches!(error, RecordError::Busy { .. }) {
                            let _ = self.trace.stop();
                        }
                        self.failed = Some(error);
                    }
                }
            }
            let is_over = child.is_none()
                && (self.failed.is_some() || !self.trace.path().exists() || self.have_ended()?);
            if status.is_some() || is_over {
                return Ok(status);
            }
            if told.elapsed() >= TELLING {
                tell(&self.session.so_far());
                told = Instant::now();
            }
            // Often enough that a ring gets no fuller than a quarter, and no more often than that takes.
            wait = match fill {
                250.. => *WAIT.start(),
                62..250 => wait,
                _ => wait * 2,
            };
            wait = wait.clamp(*WAIT.start(), *WAIT.end());
        }
    }

    /// Have all processes ended, if only some are recorded?
    fn have_ended(&self) -> Result<bool, RecordError> {
        let ended = self.only.as_ref().map_or(Ok(false), Only::have_ended);
        ended.map_err(system("look at processes"))
    }

    /// Stops the trace, and reads what is left of it.
    fn stop(mut self) -> Result<SessionSummary, RecordError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // What was recorded is written in any case.
        let stopped = self.trace.stop();
        let started = Instant::now();
        let mut quiet = Instant::now();
        // Until nothing came for some time: files of processes that have just ended, or events of such that have not
        // seen yet that the trace was stopped.
        while quiet.elapsed() < LINGER && started.elapsed() < STOPPING {
            self.wait(*WAIT.start() * 5)?;
            // Whoever asks to stop gets that.
            while self
                .signals
                .next()
                .map_err(system("read a signal"))?
                .is_some()
            {}
            let (files, progress) = self.round(true)?;
            if files > 0 || progress.bytes > 0 {
                quiet = Instant::now();
            }
        }
        for (what, error) in &self.refused {
            self.session.problem(what, error);
        }
        let finished = self.session.finish();
        let mut summary = finished.map_err(|error| failed(&self.trace, self.output, error))?;
        if self.adopts {
            self.trace.adopt();
        }
        // Only now, when its files are closed.
        for result in [stopped, self.trace.remove()] {
            if let Err(error) = result {
                summary.problems.push(describe(&error));
            }
        }
        Ok(summary)
    }

    /// Waits for a signal, a new file, or so many milliseconds.
    fn wait(&self, ms: u64) -> Result<(), RecordError> {
        let mut fds = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.watch.inotify.as_fd(), PollFlags::POLLIN),
        ];
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(system("wait")(error)),
        }
    }

    /// Takes the files that have come, and reads what there is. Gives how many files there were.
    fn round(&mut self, all: bool) -> Result<(usize, Progress), RecordError> {
        let files = self.take_files(all)?;
        let progress = self.session.drain(false, Instant::now());
        let progress = progress.map_err(|error| failed(&self.trace, self.output, error))?;
        Ok((files, progress))
    }

    /// Takes the files that have come, of those that the kernel told of, or of all. Gives how many there were.
    fn take_files(&mut self, all: bool) -> Result<usize, RecordError> {
        let files = match self.watch.new_files() {
            Ok(Some(files)) if !all => files,
            // Some were not told of, as there were too many.
            _ => self.all_files(),
        };
        let mut taken = 0;
        for (channel, name) in files {
            let is_other = self.only.as_ref().is_some_and(|only| !only.has(&name));
            if is_other || !self.session.wants(&channel, &name) {
                continue;
            }
            let what = format!("{channel}/{name}");
            match KernelFile::open(&self.trace.channel(&channel).join(&name)) {
                Ok(file) => {
                    taken += 1;
                    self.refused.remove(&what);
                    let added = self.session.add(&channel, &name, file);
                    added.map_err(|error| failed(&self.trace, self.output, error))?;
                }
                Err(error) => {
                    self.refused.insert(what, error);
                }
            }
        }
        Ok(taken)
    }

    fn all_files(&mut self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for (_, channel) in &self.watch.channels {
            match consumer_files(&self.trace.channel(channel)) {
                Ok(names) => files.extend(names.into_iter().map(|name| (channel.clone(), name))),
                Err(error) => {
                    self.refused.insert(channel.clone(), error);
                }
            }
        }
        files
    }
}

/// Tells of new files in the channels' directories (C4).
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
