//! Running a program and recording it.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use usertrace_ctf::Version;
use usertrace_ctf::recording::RecordingNote;
use usertrace_os::procfs;

use super::checkpoint::{create_output, remove_if_unused};
use super::error::{OutputError, RecordError, describe, system};
use super::open_files;
use super::pid_filter::PidFilter;
use super::recorder::TraceRecorder;
use super::relay::{RelaySender, SpoolWriter, forget_unused};
use super::signals::Signals;
use super::{
    ControlFs, FtraceError, KernelEvents, KernelOptions, KernelSummary, KernelTrace, Limits,
    RecorderEvent, RecordingProgress, RelayOptions, RelaySummary, Session, SessionSummary,
    TraceSetup,
};

/// Range of the polling interval in milliseconds, adapted to the fill level. At the maximum, a
/// program that starts to write 200 MB/s does not fill a ring of the default size.
pub(super) const WAIT: std::ops::RangeInclusive<u64> = 1..=16;
/// How often to report progress.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How long to look for consumer files of ended processes: the kernel creates them with a delay.
pub(super) const LINGER: Duration = Duration::from_millis(100);
/// How long to read from processes that still write after the trace was stopped.
const STOPPING: Duration = Duration::from_secs(2);

/// The next polling interval in milliseconds, after one of `wait`. `fill` is the fill level of the
/// fullest ring, in 1/1000. Polls often enough that no ring gets fuller than a quarter, and no more
/// often than that requires.
pub(super) fn next_wait(wait: u64, fill: u64) -> u64 {
    let wait = match fill {
        250.. => *WAIT.start(),
        62..250 => wait,
        _ => wait * 2,
    };
    wait.clamp(*WAIT.start(), *WAIT.end())
}

/// What to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The mount point of the control file system.
    pub root: PathBuf,
    /// Name of the trace.
    pub trace: String,
    /// The trace's settings.
    pub setup: TraceSetup,
    /// The output directory. It must not exist, be empty, or contain a recording of this trace
    /// whose recorder was killed.
    pub output: PathBuf,
    /// The CTF version.
    pub version: Version,
    /// The program and its arguments. If empty, all traced processes are recorded until a signal
    /// asks to stop.
    pub program: Vec<OsString>,
    /// Variables to add to its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Without a program: the processes to record, until the last of them ends. Empty for all.
    pub pids: Vec<u32>,
    /// The kernel's own events to record as well, if any.
    pub kernel: Option<KernelOptions>,
    /// When chunks end, and the maximum size.
    pub limits: Limits,
    /// The relay to send the recording to, if any. Then it has chunks, and those that were sent are
    /// removed.
    pub relay: Option<RelayOptions>,
}

impl Options {
    /// The limits, including those of the spool for a relay.
    pub(super) fn limits(&self) -> Limits {
        let relay = self.relay.as_ref();
        relay.map_or(self.limits, |relay| relay.limits(self.limits))
    }
}

/// Notifications of a recording to its caller.
#[derive(Clone, Copy, Debug)]
pub enum Notification<'a> {
    /// Statistics so far.
    RecordingProgress(&'a RecordingProgress),
    /// An event of the recording.
    RecorderEvent(&'a RecorderEvent),
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    /// Name of the trace.
    pub trace: String,
    /// Its output directory.
    pub directory: PathBuf,
    /// The program's exit status as a shell reports it. `None` if the program was left running; 0
    /// without a program.
    pub exit_status: Option<i32>,
    /// Seconds from the program's start to its end.
    pub seconds: f64,
    /// Its processes.
    #[serde(flatten)]
    pub session: SessionSummary,
    /// Number of processes whose traces could not be completed.
    pub incomplete: usize,
    /// The kernel's own events, if requested.
    pub kernel: Option<KernelSummary>,
    /// What was sent to the relay, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelaySummary>,
}

/// Creates a trace, runs a program, and records all processes of the trace until the program ends.
/// Then it removes the trace.
///
/// An existing trace of that name is joined: it is started if necessary, stopped at the end, and
/// not removed. If the directory has a recording of this trace whose recorder was killed, the
/// recording continues there, without loss of consumed events or duplicates. `notify` is called
/// once a second with statistics, and for each event of the recording. Call this in a process with
/// one thread, as it blocks signals.
///
/// # Errors
/// If recording fails, or another program consumes the trace. Except when waiting fails, a started
/// program has ended by then.
pub fn record(
    options: &Options,
    notify: &mut dyn FnMut(Notification<'_>),
) -> Result<Recording, RecordError> {
    let control_fs = ControlFs::open(&options.root)?;
    let output_error = OutputError::at(&options.output);
    let before = RecordingNote::of(&options.output).map_err(&output_error)?;
    let created = match before {
        Some(_) => false,
        None => create_output(&options.output).map_err(&output_error)?,
    };
    let recording = record_to(options, &control_fs, before.as_ref(), notify);
    // Data that did not fit on the disk can be written later.
    let is_to_go_on = matches!(recording, Err(RecordError::DiskFull { .. }));
    if recording.is_err() && before.is_none() && !is_to_go_on {
        // Only if nothing was recorded.
        remove_if_unused(&options.output);
        forget_unused(&options.output);
        if created {
            let _ = fs::remove_dir(&options.output);
        }
    }
    recording
}

/// `before` is an earlier recording in the directory.
fn record_to(
    options: &Options,
    control_fs: &ControlFs,
    before: Option<&RecordingNote>,
    notify: &mut dyn FnMut(Notification<'_>),
) -> Result<Recording, RecordError> {
    let only = match &options.pids[..] {
        [] => None,
        pids => {
            let no_process = |(pid, source)| RecordError::NoProcess { pid, source };
            Some(PidFilter::new(pids).map_err(no_process)?)
        }
    };
    let signals = Signals::new().map_err(system("take signals"))?;
    // A resumed trace was started before, so its channels are final.
    let setup = match before {
        Some(_) => &TraceSetup::default(),
        None => &options.setup,
    };
    let trace = control_fs.create(&options.trace, setup)?;
    // The checkpoint first: another recorder may hold its lock.
    let recorded = trace.recorded()?;
    let session = match options.limits().rotates() || RecordingNote::has_chunks(&options.output) {
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
    let mut recorder = TraceRecorder::new(trace, session, &options.output, only, options.limits())?;
    recorder.relay = start_relay(options, SpoolWriter::Recorder)?;
    let mut recorder = Recorder {
        recorder,
        signals,
        kernel,
        adopts: before.is_some_and(|before| before.created),
        failed: None,
    };
    recorder.recorder.round(true, false)?;
    recorder.report_events(notify);

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
    let status = recorder.run(child.as_mut(), notify)?;
    let seconds = started.elapsed().as_secs_f64();
    let (session, kernel, relay) = recorder.stop(notify)?;
    Ok(Recording {
        trace: options.trace.clone(),
        directory: options.output.clone(),
        exit_status: match child {
            None => Some(0),
            Some(_) => status.map(exit_status),
        },
        seconds,
        session,
        // With a full disk, `stop` returns an error.
        incomplete: 0,
        kernel,
        relay,
    })
}

/// Starts to send the recording to a relay, if requested.
pub(super) fn start_relay(
    options: &Options,
    writer: SpoolWriter,
) -> Result<Option<RelaySender>, OutputError> {
    let Some(relay) = &options.relay else {
        return Ok(None);
    };
    let sender = RelaySender::start(&options.output, &options.trace, relay, writer);
    sender.map(Some).map_err(OutputError::at(&options.output))
}

/// Prepares the recording of the kernel's own events, if requested. `is_monotonic` means that the
/// traces' clock is `CLOCK_MONOTONIC`.
pub(super) fn kernel_events(
    options: &Options,
    is_monotonic: bool,
) -> Result<Option<KernelEvents>, FtraceError> {
    let Some(kernel) = &options.kernel else {
        return Ok(None);
    };
    if options.limits().rotates() {
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

/// The exit status as a shell reports it.
pub(super) fn exit_status(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal)
}

struct Recorder {
    recorder: TraceRecorder,
    signals: Signals,
    /// The kernel's own events, if requested.
    kernel: Option<KernelEvents>,
    /// A recorder that was killed created the trace, so this one removes it.
    adopts: bool,
    /// The error that ended the recording.
    failed: Option<RecordError>,
}

impl Recorder {
    /// Records until the program ends, or until a second signal asks to stop; the latter returns
    /// `None` and leaves the program running. If recording fails, the program continues, and this
    /// waits for its end. Without a program, records until a signal asks to stop, the trace is
    /// removed, or the last process of the filter ends.
    fn run(
        &mut self,
        mut child: Option<&mut Child>,
        notify: &mut dyn FnMut(Notification<'_>),
    ) -> Result<Option<ExitStatus>, RecordError> {
        let mut reported = Instant::now();
        let mut wait = *WAIT.start();
        let mut is_stopping = false;
        loop {
            self.wait(wait)?;
            while let Some(received) = self.signals.next().map_err(system("read a signal"))? {
                if let Some(child) = &child {
                    received.forward_to(child);
                }
                if received.asks_to_stop() {
                    if is_stopping || child.is_none() {
                        return Ok(None);
                    }
                    is_stopping = true;
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
                        // Report the first error, not one of `stop`. A trace that another program
                        // consumes belongs to that program.
                        if !matches!(error, RecordError::Busy { .. }) {
                            let _ = self.recorder.trace.stop();
                        }
                        self.failed = Some(error);
                    }
                }
                if self.recorder.is_too_large && !was_too_large {
                    // What is in the rings is still read, and nothing else.
                    let _ = self.recorder.trace.stop();
                }
                self.share_clock();
                self.report_events(notify);
            }
            let is_over = child.is_none()
                && (self.failed.is_some()
                    || self.recorder.is_too_large
                    || !self.recorder.trace.path().exists()
                    || self.recorder.all_ended()?);
            if status.is_some() || is_over {
                return Ok(status);
            }
            if reported.elapsed() >= PROGRESS_INTERVAL {
                notify(Notification::RecordingProgress(
                    &self.recorder.session.progress(),
                ));
                reported = Instant::now();
            }
            wait = next_wait(wait, fill);
        }
    }

    fn report_events(&mut self, notify: &mut dyn FnMut(Notification<'_>)) {
        for event in self.recorder.take_events() {
            notify(Notification::RecorderEvent(&event));
        }
    }

    /// Stops the trace, and reads the rest of it.
    fn stop(
        mut self,
        notify: &mut dyn FnMut(Notification<'_>),
    ) -> Result<(SessionSummary, Option<KernelSummary>, Option<RelaySummary>), RecordError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // Write what was recorded, whether or not this succeeds.
        let stopped = self.recorder.trace.stop();
        if let Some(kernel) = &self.kernel {
            kernel.stop()?;
        }
        let started = Instant::now();
        let mut quiet = Instant::now();
        // Until no data comes for a while. Processes that just ended get files late, and running
        // ones may not have seen yet that the trace was stopped.
        while quiet.elapsed() < LINGER && started.elapsed() < STOPPING {
            self.wait(*WAIT.start() * 5)?;
            // Signals that ask to stop are ignored: the recording is stopping.
            while self
                .signals
                .next()
                .map_err(system("read a signal"))?
                .is_some()
            {}
            let round = self.recorder.round(true, false)?;
            self.share_clock();
            self.report_events(notify);
            if round.files > 0 || round.progress.bytes > 0 {
                quiet = Instant::now();
            }
        }
        // If the disk was full a moment ago, retry once more.
        self.recorder.round(true, true)?;
        let finished = match self.recorder.is_full() {
            true => None,
            false => self.recorder.finish()?,
        };
        self.share_clock();
        self.report_events(notify);
        let Some(mut summary) = finished else {
            // The rings keep their data, as if this recorder had been killed.
            self.recorder.trace.keep();
            if let Some(kernel) = self.kernel {
                kernel.keep();
            }
            return Err(self.recorder.disk_full());
        };
        if self.adopts {
            self.recorder.trace.adopt();
        }
        // The kernel removes a trace only after its files are closed.
        let TraceRecorder {
            session,
            trace,
            relay,
            ..
        } = self.recorder;
        drop(session);
        for result in [stopped, trace.remove()] {
            if let Err(error) = result {
                summary.problems.push(describe(&error));
            }
        }
        let kernel = self.kernel.map(KernelEvents::finish);
        let relay = finish_relay(relay, &self.signals, notify)?;
        Ok((summary, kernel, relay))
    }

    /// Passes the traces' clock on to the kernel's events, as soon as it is known and whenever it
    /// is refined.
    fn share_clock(&mut self) {
        if let Some(kernel) = &mut self.kernel
            && let Some(clock) = self.recorder.session.clock()
        {
            kernel.set_clock(clock);
        }
    }

    /// Waits for a signal, a new file, or `ms` milliseconds.
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

/// Sends the rest of a recording that has ended. A signal that asks to stop ends that.
pub(super) fn finish_relay(
    relay: Option<RelaySender>,
    signals: &Signals,
    notify: &mut dyn FnMut(Notification<'_>),
) -> Result<Option<RelaySummary>, RecordError> {
    let Some(relay) = relay else {
        return Ok(None);
    };
    let mut notify = |event| notify(Notification::RecorderEvent(&RecorderEvent::Relay(event)));
    relay.finish(&mut notify, || {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(20u8)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(system("wait")(error)),
        }
        let mut goes_on = true;
        while let Some(received) = signals.next().map_err(system("read a signal"))? {
            goes_on &= !received.asks_to_stop();
        }
        Ok(goes_on)
    })
}
