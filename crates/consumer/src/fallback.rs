//! Runs a program and records it without the kernel's trace buffers. The fallback's daemons, which
//! the program starts, write the traces.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use usertrace_ctf::recording::{Failures, LOG, RUNNING, finished, parse_summary, read_log};
use usertrace_ctf::{ProcessSummary, Version};
use usertrace_os::{files, procfs, time};
use usertrace_sys::clock::{self, Source};

use super::checkpoint;
use super::error::{OutputError, RecordError, system};
use super::open_files;
use super::record::{exit_status, finish_relay, kernel_events, start_relay};
use super::relay::{RelaySender, SpoolWriter, forget_unused};
use super::rotation::Rotation;
use super::signals::{ReceivedSignal, Signals};
use super::{KernelEvents, Notification, Options, RecorderEvent, Recording, SessionSummary};

/// How often to check whether the daemons have finished.
const WAIT: Duration = Duration::from_millis(5);

/// Maximum number of bytes of the log that are reported.
const MOST_LOG: u64 = 64 << 10;

/// Runs and records a program like [`record`](super::record), by the fallback. `notify` is called
/// for each event of the recording.
///
/// # Errors
/// If the program cannot be run or recorded.
pub fn record_fallback(
    options: &Options,
    notify: &mut dyn FnMut(Notification<'_>),
) -> Result<Recording, RecordError> {
    if !options.pids.is_empty() {
        return Err(RecordError::RunsAlready);
    }
    if !options.setup.triggers.is_empty() {
        return Err(RecordError::NoTriggers);
    }
    let program = options.program.first().ok_or(RecordError::NoProgram)?;
    let output_error = OutputError::at(&options.output);
    let (output, signals) = prepare(options)?;
    let mut command = command(options, &output.directory);
    signals.restore_mask_in(&mut command);
    open_files::restore_limit_in(&mut command);
    let kernel = kernel_events(options, false).and_then(|kernel| {
        kernel.as_ref().map_or(Ok(()), KernelEvents::start)?;
        Ok(kernel)
    });
    let started = Instant::now();
    let begun = kernel.map_err(RecordError::from).and_then(|kernel| {
        let relay = start_relay(options, SpoolWriter::Daemons)?;
        Ok((spawn(&mut command, program)?, kernel, relay))
    });
    let (mut child, kernel, relay) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            output.forget();
            return Err(error);
        }
    };
    let Output {
        directory,
        path,
        running,
        rotation,
    } = output;
    let mut waiter = Waiter {
        signals,
        rotation,
        relay,
        notify,
    };
    let status = waiter.for_program(&mut child)?;
    if let Some(kernel) = &kernel {
        kernel.stop()?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let is_written = status.is_some() && waiter.for_daemons(&running)?;
    waiter.end(is_written).map_err(&output_error)?;
    let (session, incomplete) = summary(&directory, &path).map_err(&output_error)?;
    let relay = finish_relay(waiter.relay.take(), &waiter.signals, waiter.notify)?;
    Ok(Recording {
        incomplete,
        trace: options.trace.clone(),
        directory: options.output.clone(),
        exit_status: status.map(exit_status),
        seconds,
        session,
        kernel: kernel.map(KernelEvents::finish),
        relay,
    })
}

/// The output directory, and its files for the daemons.
struct Output {
    /// The canonical path.
    directory: PathBuf,
    /// The file that the daemons lock while they run.
    path: PathBuf,
    running: File,
    rotation: Option<Rotation>,
}

impl Output {
    /// Removes the files after a failed start. The caller reports an earlier error; failures here
    /// would hide it.
    fn forget(self) {
        if let Some(rotation) = self.rotation {
            rotation.forget();
        }
        let _ = fs::remove_file(&self.path);
        forget_unused(&self.directory);
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Creates the files that must exist before the program runs.
fn prepare(options: &Options) -> Result<(Output, Signals), RecordError> {
    let output_error = OutputError::at(&options.output);
    checkpoint::create_output(&options.output).map_err(&output_error)?;
    // Daemons would trust files that somebody else left there.
    checkpoint::remove_if_unused(&options.output);
    let directory = fs::canonicalize(&options.output).map_err(&output_error)?;
    let path = directory.join(RUNNING);
    // Readable by this user only: any holder of the lock can block this process forever.
    let running = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(&output_error)?;
    let mut output = Output {
        directory,
        path,
        running,
        rotation: None,
    };
    let begun = output
        .running
        .write_all(Failures::default().line().as_bytes())
        .and_then(|()| Rotation::new(&options.output, options.limits()));
    match begun {
        Ok(rotation) => output.rotation = rotation,
        Err(error) => {
            output.forget();
            return Err(output_error(error).into());
        }
    }
    match Signals::new() {
        Ok(signals) => Ok((output, signals)),
        Err(error) => {
            output.forget();
            Err(system("take signals")(error))
        }
    }
}

/// The command that runs the program, with an environment that makes it trace to `directory`.
fn command(options: &Options, directory: &Path) -> Command {
    let mut words = options.program.iter();
    let mut command = Command::new(words.next().map_or(OsStr::new(""), OsString::as_os_str));
    command.args(words);
    command.env("USERTRACE_BACKEND", "fast");
    command.env("USERTRACE_OUTPUT", directory);
    command.env("USERTRACE_CLOCK", time_of_day());
    let sizes = [
        ("USERTRACE_SUBBUF_SIZE", options.setup.subbuf_size),
        ("USERTRACE_SUBBUF_COUNT", options.setup.subbuf_count),
    ];
    for (name, size) in sizes {
        if let Some(size) = size {
            command.env(name, size.to_string());
        }
    }
    if !options.setup.contexts.is_empty() {
        command.env("USERTRACE_CONTEXTS", options.setup.contexts.join(" "));
    }
    if options.setup.flight {
        command.env("USERTRACE_MODE", "overwrite");
    }
    if options.setup.block {
        command.env("USERTRACE_MODE", "block");
    }
    if options.version == Version::V2 {
        command.env("USERTRACE_CTF", "2");
    }
    if !options.setup.counts.is_empty() {
        command.env("USERTRACE_COUNT", options.setup.counts.join("\n"));
    }
    if let Some(filter) = options.setup.filter() {
        command.env("USERTRACE_FILTER", filter);
    }
    let more = options.environment.iter();
    command.envs(more.map(|(name, value)| (name, value)));
    command
}

fn spawn(command: &mut Command, program: &OsStr) -> Result<Child, RecordError> {
    command.spawn().map_err(|source| RecordError::Program {
        program: program.to_string_lossy().into_owned(),
        source,
    })
}

/// Waits for the program and the daemons, and rotates chunks meanwhile.
struct Waiter<'a> {
    signals: Signals,
    rotation: Option<Rotation>,
    relay: Option<RelaySender>,
    notify: &'a mut dyn FnMut(Notification<'_>),
}

impl Waiter<'_> {
    /// Waits for the program, and forwards signals to it. Returns `None` after a second signal that
    /// asks to stop.
    fn for_program(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, RecordError> {
        let mut is_stopping = false;
        loop {
            self.wait(None)?;
            while let Some(received) = self.next()? {
                received.forward_to(child);
                if received.asks_to_stop() {
                    if is_stopping {
                        return Ok(None);
                    }
                    is_stopping = true;
                }
            }
            let status = child.try_wait().map_err(system("wait for the program"))?;
            if status.is_some() {
                return Ok(status);
            }
        }
    }

    /// Waits until the daemons have written everything, which is after the end of the program's
    /// last descendant. Returns false if a signal asks to stop.
    fn for_daemons(&mut self, running: &File) -> Result<bool, RecordError> {
        loop {
            if files::flock(running, libc::LOCK_EX).is_ok() {
                return Ok(true);
            }
            self.wait(Some(WAIT))?;
            while let Some(received) = self.next()? {
                if received.asks_to_stop() {
                    return Ok(false);
                }
            }
        }
    }

    fn next(&self) -> Result<Option<ReceivedSignal>, RecordError> {
        self.signals.next().map_err(system("read a signal"))
    }

    /// Waits for a signal or a timeout, then rotates chunks if they are due.
    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), RecordError> {
        let pause = self.rotation.as_ref().map(Rotation::pause);
        let timeout = at_most.into_iter().chain(pause).min();
        let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
            PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(system("wait")(error)),
        }
        if let Some(rotation) = &mut self.rotation {
            rotation.step();
            if let Some(relay) = &mut self.relay {
                // With errors about the directory, chunks cannot be started, which is reported.
                let is_full = relay.is_full().unwrap_or(false);
                let _ = rotation.hold(is_full);
            }
        }
        self.report_events();
        Ok(())
    }

    /// Ends the recording. `is_written` means that no daemon runs any more.
    fn end(&mut self, is_written: bool) -> io::Result<()> {
        let ended = self
            .rotation
            .as_mut()
            .map_or(Ok(()), |rotation| rotation.end(is_written));
        self.report_events();
        ended
    }

    fn report_events(&mut self) {
        let events = self.rotation.as_mut().map(Rotation::take_events);
        let of_relay = self.relay.as_ref().map(RelaySender::take_events);
        let of_relay = of_relay.into_iter().flatten().map(RecorderEvent::Relay);
        for event in events.into_iter().flatten().chain(of_relay) {
            (self.notify)(Notification::RecorderEvent(&event));
        }
    }
}

/// The lines of the daemons' log. If it is unreadable or too long, a line says so.
fn log(directory: &Path) -> Vec<String> {
    let name = directory.join(LOG);
    let log = match read_log(directory, MOST_LOG) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            return vec![format!(
                "cannot read {:?}: {error}",
                name.display().to_string()
            )];
        }
    };
    let mut lines: Vec<_> = log.lines().map(str::to_owned).collect();
    if log.len() as u64 >= MOST_LOG {
        lines.push(format!(
            "the rest of this is in {:?}",
            name.display().to_string()
        ));
    }
    lines
}

/// Reads the daemons' summaries of all processes, and their problems.
fn summary(directory: &Path, running: &Path) -> io::Result<(SessionSummary, usize)> {
    let reports = fs::read_to_string(running)?;
    let failures = reports.lines().next().and_then(Failures::parse);
    let failures = failures.unwrap_or_default();
    let (mut processes, mut bytes) = (BTreeMap::new(), BTreeMap::new());
    for reported in reports
        .lines()
        .filter_map(|line| parse_summary(directory, line))
    {
        let key = (reported.process, reported.pid);
        // The last line covers the whole process, but its size covers only the trace of one daemon.
        // An earlier daemon may have reported another trace.
        let of_traces: &mut BTreeMap<_, _> = bytes.entry(key).or_default();
        of_traces.insert(reported.directory.clone(), reported.bytes);
        let summary = ProcessSummary {
            bytes: of_traces
                .values()
                .fold(0, |sum, of| sum.saturating_add(*of)),
            directory: finished(&reported.directory),
            ..reported
        };
        processes.insert(key, summary);
    }
    fs::remove_file(running)?;
    let mut problems = log(directory);
    if failures.processes > 0 {
        problems.push(format!(
            "cannot write to \"{}\": {}; the traces of {} {} are incomplete or missing: {} bytes \
             stayed in the rings, and {} events were discarded",
            directory.display(),
            io::Error::from_raw_os_error(failures.errno),
            failures.processes,
            if failures.processes == 1 {
                "process"
            } else {
                "processes"
            },
            failures.bytes,
            failures.lost
        ));
    }
    let session = SessionSummary {
        processes: processes.into_values().collect(),
        problems,
    };
    Ok((session, failures.processes as usize))
}

/// The current time of day in the format of `USERTRACE_CLOCK`.
fn time_of_day() -> OsString {
    let sync = clock::sync(Source::Monotonic);
    let offset = sync.realtime.wrapping_sub(sync.monotonic).cast_signed();
    let error = time::error().map_or(String::new(), |ns| format!(",{ns}"));
    let mut text = OsString::from(format!("{offset}{error}@"));
    text.push(procfs::time_namespace());
    text
}
