//! Finds the fallback's daemons, and makes them write the contents of the rings.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use usertrace_ctf::recording::{DAEMON, LOG, WRITE_NOW};
use usertrace_ctf::{METADATA, mend, unfinished};
use usertrace_os::procfs;
use usertrace_sys::clock::monotonic;

use super::checkpoint::create_output;

/// The signal that makes a worker write the contents of its rings.
const WRITE_SIGNAL: Signal = Signal::SIGUSR2;
const _: () = assert!(WRITE_SIGNAL as i32 == WRITE_NOW);
/// How long a daemon may take to write the contents of its rings.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to look for the trace of a process that may have written no event, or for the daemons
/// of a process that just started.
const FIND_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time between two scans of all processes.
const SCAN_INTERVAL: Duration = Duration::from_millis(20);
/// Number of polls after which the signal is sent again.
const RESEND_EVERY: u32 = 20;

/// A trace that a daemon is writing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DaemonTrace {
    /// Its directory.
    pub directory: PathBuf,
    /// The traced process.
    pub process: u32,
    daemon: u32,
}

/// Why the contents of the rings could not be written, or copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// No program is traced to this directory.
    #[error("no program is being traced to \"{}\"", .0.display())]
    NoProgram(PathBuf),
    /// The fallback does not trace this process.
    #[error("process {0} is not traced by the fallback")]
    NoProcess(u32),
    /// The daemon belongs to another user.
    #[error("cannot ask daemon {daemon} to write what is in the rings")]
    Ask {
        /// Its process id.
        daemon: u32,
        /// Why.
        source: Errno,
    },
    /// The daemon did not write its rings in time.
    #[error(
        "daemon {daemon} has not written what is in the rings of \"{}\"; \
         its directory's {LOG} may say why",
        directory.display()
    )]
    NoAnswer {
        /// Its process id.
        daemon: u32,
        /// The trace.
        directory: PathBuf,
    },
    /// The trace could not be copied.
    #[error("cannot copy \"{}\"", path.display())]
    Copy {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Whether a process is a daemon. Daemons run their program's executable, but write no events.
pub(super) fn is_daemon(pid: u32) -> bool {
    procfs::name(pid).as_bytes() == DAEMON.to_bytes()
}

/// Process ids of all daemons that this user may inspect.
fn daemons() -> impl Iterator<Item = u32> {
    procfs::pids().filter(|&pid| is_daemon(pid))
}

/// The traces that a daemon is writing: those whose marks it has open.
fn written_by(daemon: u32) -> Vec<DaemonTrace> {
    let files = fs::read_dir(format!("/proc/{daemon}/fd"));
    let links = files.into_iter().flatten().flatten();
    let marks = links.filter_map(|link| fs::read_link(link.path()).ok());
    let marks = marks.filter(|path| path.file_name() == Some(OsStr::new(unfinished::NAME)));
    let written = marks.filter_map(|mark| {
        let directory = mark.parent()?.to_owned();
        let process = unfinished::process(&directory)?;
        Some(DaemonTrace {
            directory,
            process,
            daemon,
        })
    });
    written.collect()
}

/// Looks for daemons until some are found or a timeout: a program that just started has none yet.
fn find(look: impl Fn() -> BTreeSet<u32>) -> BTreeSet<u32> {
    let begun = Instant::now();
    loop {
        let daemons = look();
        if !daemons.is_empty() || begun.elapsed() > FIND_TIMEOUT {
            return daemons;
        }
        thread::sleep(SCAN_INTERVAL);
    }
}

/// The programs that are traced to a directory, or below it.
#[must_use]
pub fn programs_below(directory: &Path) -> Vec<u32> {
    let memory: BTreeSet<String> = find(|| daemons_of(directory))
        .into_iter()
        .flat_map(shared_memory)
        .collect();
    if memory.is_empty() {
        return Vec::new();
    }
    let is_traced = |&pid: &u32| !is_daemon(pid) && !shared_memory(pid).is_disjoint(&memory);
    procfs::pids().filter(is_traced).collect()
}

/// The daemons that write to a directory or below it, or will do so.
fn daemons_of(directory: &Path) -> BTreeSet<u32> {
    let Ok(directory) = directory.canonicalize() else {
        return BTreeSet::new();
    };
    let is_there = |written: &DaemonTrace| written.directory.starts_with(&directory);
    let is_wanted = |&daemon: &u32| {
        written_by(daemon).iter().any(is_there) || is_configured_for(daemon, &directory)
    };
    daemons().filter(is_wanted).collect()
}

/// Whether a daemon is a worker that handles [`WRITE_SIGNAL`]. The watchdog ignores it, and a
/// worker of an earlier version would be killed by it.
fn is_worker(daemon: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (WRITE_NOW - 1) != 0)
}

/// Whether the environment of a daemon's program configures it to trace to this directory. A
/// relative path is only compared by its last component: the program may have changed its
/// directory.
fn is_configured_for(daemon: u32, directory: &Path) -> bool {
    let environment = fs::read(format!("/proc/{daemon}/environ")).unwrap_or_default();
    let mut variables = environment.split(|&byte| byte == 0);
    let output = variables.find_map(|variable| variable.strip_prefix(b"USERTRACE_OUTPUT="));
    let Some(output) = output.map(|output| Path::new(OsStr::from_bytes(output))) else {
        return false;
    };
    match output.is_absolute() {
        true => output
            .canonicalize()
            .is_ok_and(|output| output.starts_with(directory)),
        false => output.file_name() == directory.file_name(),
    }
}

/// The unnamed shared mappings of a process, by device and inode.
fn shared_memory(pid: u32) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps
        .lines()
        .filter(|line| line.ends_with("/dev/zero (deleted)"));
    lines.filter_map(procfs::device_and_inode).collect()
}

/// Makes all daemons below `directory` write the contents of their rings, and copies their traces
/// to `output`.
///
/// # Errors
/// If no program is traced there, or a trace cannot be written or copied.
pub fn snapshot_below(directory: &Path, output: &Path) -> Result<Vec<DaemonTrace>, DaemonError> {
    let nobody = || DaemonError::NoProgram(directory.to_owned());
    let canonical = directory.canonicalize().map_err(|_| nobody())?;
    let daemons = find(|| daemons_of(directory));
    if daemons.is_empty() {
        return Err(nobody());
    }
    let is_there = |written: &DaemonTrace| written.directory.starts_with(&canonical);
    copy(ask(&daemons, is_there)?, output)
}

/// Writes and copies the trace of one process, like [`snapshot_below`]. Returns an empty list if
/// the process has written no event yet.
///
/// # Errors
/// If the fallback does not trace the process, or its trace cannot be written or copied.
pub fn snapshot_of(process: u32, output: &Path) -> Result<Vec<DaemonTrace>, DaemonError> {
    let daemons = find(|| {
        let memory = shared_memory(process);
        daemons()
            .filter(|&daemon| !shared_memory(daemon).is_disjoint(&memory))
            .collect()
    });
    if daemons.is_empty() {
        return Err(DaemonError::NoProcess(process));
    }
    let is_it = |written: &DaemonTrace| written.process == process;
    copy(ask(&daemons, is_it)?, output)
}

/// Makes a worker write the contents of its rings.
fn send_write_signal(daemon: u32) -> Result<(), DaemonError> {
    match kill(Pid::from_raw(daemon.cast_signed()), WRITE_SIGNAL) {
        // It has written everything, and ended.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(source) => Err(DaemonError::Ask { daemon, source }),
    }
}

/// Makes all workers of a directory write the contents of their rings. They also check where to
/// start new traces.
///
/// # Errors
/// The last error about a daemon; the signal is sent to all others.
pub(super) fn ask_below(directory: &Path) -> Result<(), DaemonError> {
    let workers = daemons_of(directory)
        .into_iter()
        .filter(|&daemon| is_worker(daemon));
    let mut result = Ok(());
    for worker in workers {
        result = send_write_signal(worker).and(result);
    }
    result
}

/// Makes daemons write the contents of their rings, and waits until the selected traces are
/// written. Returns these traces.
fn ask(
    daemons: &BTreeSet<u32>,
    is_selected: impl Fn(&DaemonTrace) -> bool,
) -> Result<Vec<DaemonTrace>, DaemonError> {
    let since = monotonic();
    let begun = Instant::now();
    for n in 0.. {
        let workers = daemons.iter().copied().filter(|&daemon| is_worker(daemon));
        let workers: Vec<u32> = workers.collect();
        // Send repeatedly: a worker that is starting does not handle the signal yet.
        if n % RESEND_EVERY == 0 {
            workers
                .iter()
                .try_for_each(|&daemon| send_write_signal(daemon))?;
        }
        let list = || -> BTreeSet<_> {
            let all = daemons.iter().flat_map(|&daemon| written_by(daemon));
            all.filter(&is_selected).collect()
        };
        let selected = list();
        let is_late = |written: &&DaemonTrace| {
            unfinished::written(&written.directory) < Some(since)
                && written.directory.join(unfinished::NAME).exists()
        };
        let waited = begun.elapsed();
        let is_there = |&daemon: &u32| selected.iter().any(|written| written.daemon == daemon);
        // A trace is created with its first event. Whether there was one cannot be observed, so
        // wait a while.
        let is_whole =
            !selected.is_empty() && workers.iter().all(is_there) || waited > FIND_TIMEOUT;
        match selected.iter().find(is_late) {
            // A worker stores these notes when it has begun the traces of all its processes: those
            // that were begun since the list are there now.
            None if is_whole && list() == selected => return Ok(selected.into_iter().collect()),
            None if is_whole => {}
            Some(late) if waited > PATIENCE => {
                return Err(DaemonError::NoAnswer {
                    daemon: late.daemon,
                    directory: late.directory.clone(),
                });
            }
            _ => thread::sleep(POLL_INTERVAL),
        }
    }
    Ok(Vec::new())
}

/// Copies traces, up to their last complete packets.
fn copy(written: Vec<DaemonTrace>, output: &Path) -> Result<Vec<DaemonTrace>, DaemonError> {
    let copied = |written: &DaemonTrace| -> io::Result<()> {
        let name = written.directory.file_name().unwrap_or_default();
        let to = output.join(name);
        fs::create_dir_all(&to)?;
        // The metadata last, so that they describe everything in the streams.
        let mut files: Vec<_> = fs::read_dir(&written.directory)?.collect::<io::Result<_>>()?;
        files.sort_by_key(|file| file.file_name() == METADATA);
        for file in files {
            let is_hidden = file.file_name().as_encoded_bytes().starts_with(b".");
            // Skip everything but files: opening a FIFO, for example, would block.
            if !is_hidden && file.file_type()?.is_file() {
                fs::copy(file.path(), to.join(file.file_name()))?;
            }
        }
        mend(&to)
    };
    create_output(output).map_err(|source| DaemonError::Copy {
        path: output.to_owned(),
        source,
    })?;
    for written in &written {
        copied(written).map_err(|source| DaemonError::Copy {
            path: written.directory.clone(),
            source,
        })?;
    }
    Ok(written)
}
