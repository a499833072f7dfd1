//! The fallback's daemons, and how they are asked to write what is in the rings now.

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

use super::record::create_output;

/// By this signal.
const WRITE_SIGNAL: Signal = Signal::SIGUSR2;
const _: () = assert!(WRITE_SIGNAL as i32 == WRITE_NOW);
/// How long a daemon may take to write what is there.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to look for a trace of a process that may have written nothing, and for daemons of one
/// that has just begun.
const FIND_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Between two looks at all processes.
const SCAN_INTERVAL: Duration = Duration::from_millis(20);
/// After how many of these to ask once more.
const RESEND_EVERY: u32 = 20;

/// A trace that a daemon is writing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// Its directory.
    pub directory: PathBuf,
    /// The process that is traced.
    pub process: u32,
    daemon: u32,
}

/// Why what is in the rings could not be written, or copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Nobody writes there.
    #[error("no program is being traced to \"{}\"", .0.display())]
    NoProgram(PathBuf),
    /// The fallback knows nothing of the process.
    #[error("process {0} is not traced by the fallback")]
    NoProcess(u32),
    /// A daemon belongs to somebody else, or has ended.
    #[error("cannot ask daemon {daemon} to write what is in the rings")]
    Ask {
        /// Its process id.
        daemon: u32,
        /// Why.
        source: Errno,
    },
    /// A daemon did not do it.
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
    /// The copy.
    #[error("cannot copy \"{}\"", path.display())]
    Copy {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Whether a process is one of the daemons, which are what their programs are, but write no events.
pub(super) fn is_daemon(pid: u32) -> bool {
    procfs::name(pid).as_bytes() == DAEMON.to_bytes()
}

/// Process ids of all daemons that may be looked at.
fn daemons() -> impl Iterator<Item = u32> {
    procfs::pids().filter(|&pid| is_daemon(pid))
}

/// The traces that a daemon is writing: it holds their marks.
fn written_by(daemon: u32) -> Vec<Written> {
    let files = fs::read_dir(format!("/proc/{daemon}/fd"));
    let links = files.into_iter().flatten().flatten();
    let marks = links.filter_map(|link| fs::read_link(link.path()).ok());
    let marks = marks.filter(|path| path.file_name() == Some(OsStr::new(unfinished::NAME)));
    let written = marks.filter_map(|mark| {
        let directory = mark.parent()?.to_owned();
        let process = unfinished::process(&directory)?;
        Some(Written {
            directory,
            process,
            daemon,
        })
    });
    written.collect()
}

/// Looks for daemons, also a while after there is none: what has just begun does not have them yet.
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

/// The daemons that write to a directory, or below it, or would.
fn daemons_of(directory: &Path) -> BTreeSet<u32> {
    let Ok(directory) = directory.canonicalize() else {
        return BTreeSet::new();
    };
    let is_there = |written: &Written| written.directory.starts_with(&directory);
    let is_wanted = |&daemon: &u32| {
        written_by(daemon).iter().any(is_there) || is_configured_for(daemon, &directory)
    };
    daemons().filter(is_wanted).collect()
}

/// Whether a daemon is a worker that listens: the other one ignores what workers are asked by, and
/// one of an earlier version would die of it.
fn is_worker(daemon: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (WRITE_NOW - 1) != 0)
}

/// Whether a daemon's program was told to trace to this directory, as far as its environment says.
/// A relative path says less: by then the program may be elsewhere.
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

/// The memory that a process shares with others without a name, as the kernel shows it.
fn shared_memory(pid: u32) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps
        .lines()
        .filter(|line| line.ends_with("/dev/zero (deleted)"));
    lines.filter_map(procfs::device_and_inode).collect()
}

/// Writes what is in the rings of all processes that are traced below `directory` to their traces,
/// and copies these to `output`.
///
/// # Errors
/// When nobody is traced there, or a trace cannot be written or copied.
pub fn snapshot_below(directory: &Path, output: &Path) -> Result<Vec<Written>, DaemonError> {
    let nobody = || DaemonError::NoProgram(directory.to_owned());
    let canonical = directory.canonicalize().map_err(|_| nobody())?;
    let daemons = find(|| daemons_of(directory));
    if daemons.is_empty() {
        return Err(nobody());
    }
    let is_there = |written: &Written| written.directory.starts_with(&canonical);
    copy(ask(&daemons, is_there)?, output)
}

/// Likewise, of one process. Nothing if it has written no event yet.
///
/// # Errors
/// When the fallback does not trace it, or its trace cannot be written or copied.
pub fn snapshot_of(process: u32, output: &Path) -> Result<Vec<Written>, DaemonError> {
    let daemons = find(|| {
        let memory = shared_memory(process);
        daemons()
            .filter(|&daemon| !shared_memory(daemon).is_disjoint(&memory))
            .collect()
    });
    if daemons.is_empty() {
        return Err(DaemonError::NoProcess(process));
    }
    let is_it = |written: &Written| written.process == process;
    copy(ask(&daemons, is_it)?, output)
}

/// Asks a daemon to write what is in the rings, if it is a worker that listens.
fn send_write_signal(daemon: u32) -> Result<(), DaemonError> {
    match kill(Pid::from_raw(daemon.cast_signed()), WRITE_SIGNAL) {
        // It has written all, and ended.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(source) => Err(DaemonError::Ask { daemon, source }),
    }
}

/// Asks those who write to a directory, or below it, or would, to write what is in the rings. They
/// look then, too, where traces are to be begun.
///
/// # Errors
/// The last of those of daemons that cannot be asked. All others are.
pub(super) fn ask_below(directory: &Path) -> Result<(), DaemonError> {
    let workers = daemons_of(directory)
        .into_iter()
        .filter(|&daemon| is_worker(daemon));
    let mut asked = Ok(());
    for worker in workers {
        asked = send_write_signal(worker).and(asked);
    }
    asked
}

/// Asks daemons to write what is in the rings, and waits until they have, for the traces that are
/// asked for. Gives these.
fn ask(
    daemons: &BTreeSet<u32>,
    is_asked: impl Fn(&Written) -> bool,
) -> Result<Vec<Written>, DaemonError> {
    let since = monotonic();
    let begun = Instant::now();
    for n in 0.. {
        let workers = daemons.iter().copied().filter(|&daemon| is_worker(daemon));
        let workers: Vec<u32> = workers.collect();
        // Again and again: one that is starting does not listen yet.
        if n % RESEND_EVERY == 0 {
            workers
                .iter()
                .try_for_each(|&daemon| send_write_signal(daemon))?;
        }
        let all = daemons.iter().flat_map(|&daemon| written_by(daemon));
        let asked: BTreeSet<_> = all.filter(&is_asked).collect();
        let is_late = |written: &&Written| {
            unfinished::written(&written.directory) < Some(since)
                && written.directory.join(unfinished::NAME).exists()
        };
        let waited = begun.elapsed();
        let is_there = |&daemon: &u32| asked.iter().any(|written| written.daemon == daemon);
        // A trace comes to be with its first event: nobody can see whether there was one.
        let is_whole = !asked.is_empty() && workers.iter().all(is_there) || waited > FIND_TIMEOUT;
        match asked.iter().find(is_late) {
            None if is_whole => return Ok(asked.into_iter().collect()),
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

/// Copies traces, up to their last whole packets.
fn copy(written: Vec<Written>, output: &Path) -> Result<Vec<Written>, DaemonError> {
    let copied = |written: &Written| -> io::Result<()> {
        let name = written.directory.file_name().unwrap_or_default();
        let to = output.join(name);
        fs::create_dir_all(&to)?;
        // Metadata last: they describe all that is in the streams.
        let mut files: Vec<_> = fs::read_dir(&written.directory)?.collect::<io::Result<_>>()?;
        files.sort_by_key(|file| file.file_name() == METADATA);
        for file in files {
            let is_hidden = file.file_name().as_encoded_bytes().starts_with(b".");
            // Nobody knows what else there is, such as a FIFO that one waits for.
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
