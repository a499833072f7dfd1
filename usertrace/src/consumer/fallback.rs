//! Running a program and recording it where the kernel has no trace buffers: the program's own daemons do the work.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::open_files;
use super::record::{OutputError, create_output, exit_status, kernel_events, system};
use super::signals::{Came, Signals};
use super::{KernelEvents, Limits, Options, RecordError, Recording, SessionSummary};
use crate::ctf::Version;
use crate::runtime::{Failures, RUNNING, clock_of_recording, parse_summary};

/// Milliseconds between two looks whether the daemons are done.
const WAIT: u16 = 5;

/// As [`record`](super::record), by the fallback.
///
/// # Errors
/// When that cannot be done.
pub fn record_fallback(options: &Options) -> Result<Recording, RecordError> {
    if !options.pids.is_empty() {
        return Err(RecordError::RunsAlready);
    }
    if options.limits != Limits::default() {
        return Err(RecordError::NoChunks);
    }
    let (program, arguments) = options
        .program
        .split_first()
        .ok_or(RecordError::NoProgram)?;
    let output_error = OutputError::at(&options.output);
    create_output(&options.output).map_err(&output_error)?;
    let directory = fs::canonicalize(&options.output).map_err(&output_error)?;
    let path = directory.join(RUNNING);
    // For this user only: who may lock it can have this wait for ever.
    let mut running = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(&output_error)?;
    let begun = running.write_all(Failures::default().line().as_bytes());
    if let Err(error) = begun {
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir(&directory);
        return Err(output_error(error).into());
    }
    let signals = Signals::new().map_err(system("take signals"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    command.env("USERTRACE_BACKEND", "fast");
    command.env("USERTRACE_OUTPUT", &directory);
    command.env("USERTRACE_CLOCK", clock_of_recording());
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
    if let Some(filter) = options.setup.filter() {
        command.env("USERTRACE_FILTER", filter);
    }
    let more = options.environment.iter();
    command.envs(more.map(|(name, value)| (name, value)));
    signals.not_in(&mut command);
    open_files::not_in(&mut command);
    let begun = kernel_events(options, false).and_then(|kernel| {
        kernel.as_ref().map_or(Ok(()), KernelEvents::start)?;
        Ok(kernel)
    });
    let started = Instant::now();
    let begun = begun
        .map_err(RecordError::from)
        .and_then(|kernel| Ok((spawn(&mut command, program)?, kernel)));
    let (mut child, kernel) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            // What was made for it.
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir(&directory);
            return Err(error);
        }
    };
    let status = wait_for(&mut child, &signals)?;
    if let Some(kernel) = &kernel {
        kernel.stop()?;
    }
    let seconds = started.elapsed().as_secs_f64();
    if status.is_some() {
        wait_for_daemons(&running, &signals)?;
    }
    let (session, incomplete) = summary(&directory, &path).map_err(&output_error)?;
    Ok(Recording {
        incomplete,
        trace: options.trace.clone(),
        directory: options.output.clone(),
        exit_status: status.map(exit_status),
        seconds,
        session,
        kernel: kernel.map(KernelEvents::finish),
    })
}

fn spawn(command: &mut Command, program: &OsStr) -> Result<Child, RecordError> {
    command.spawn().map_err(|source| RecordError::Program {
        program: program.to_string_lossy().into_owned(),
        source,
    })
}

/// Waits for the program, and passes signals on to it. None: somebody insists to stop.
fn wait_for(child: &mut Child, signals: &Signals) -> Result<Option<ExitStatus>, RecordError> {
    let mut asked = false;
    loop {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(system("wait")(error)),
        }
        while let Some(came) = signals.next().map_err(system("read a signal"))? {
            let Came::Forward {
                signal,
                from_terminal,
            } = came
            else {
                continue;
            };
            if !from_terminal {
                // That it has ended in the meantime is seen below; its id is not reused before.
                let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
            }
            if ends(signal) {
                if asked {
                    return Ok(None);
                }
                asked = true;
            }
        }
        let status = child.try_wait().map_err(system("wait for the program"))?;
        if status.is_some() {
            return Ok(status);
        }
    }
}

fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP)
}

/// Waits until the daemons have written everything, which is when the last process that the program left has ended, or
/// until somebody asks to stop.
fn wait_for_daemons(running: &File, signals: &Signals) -> Result<(), RecordError> {
    loop {
        // SAFETY: a descriptor of this process.
        if unsafe { libc::flock(running.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(WAIT)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(system("wait")(error)),
        }
        while let Some(came) = signals.next().map_err(system("read a signal"))? {
            if matches!(came, Came::Forward { signal, .. } if ends(signal)) {
                return Ok(());
            }
        }
    }
}

/// What the daemons have told of each process, and what went wrong.
fn summary(directory: &Path, running: &Path) -> io::Result<(SessionSummary, usize)> {
    let told = fs::read_to_string(running)?;
    let failures = told.lines().next().and_then(Failures::parse);
    let failures = failures.unwrap_or_default();
    let mut processes = BTreeMap::new();
    for summary in told
        .lines()
        .filter_map(|line| parse_summary(directory, line))
    {
        // A daemon that took the place of another one may have told it again.
        processes.insert((summary.process, summary.pid), summary);
    }
    fs::remove_file(running)?;
    let log = fs::read_to_string(directory.join("usertrace.log")).unwrap_or_default();
    let mut problems: Vec<_> = log.lines().map(str::to_owned).collect();
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
