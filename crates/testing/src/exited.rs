//! Resource usage of processes that have ended, and sizes of their files.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// A process that has ended.
#[derive(Clone, Copy, Debug)]
pub struct ExitedProcess {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its processor time, in user and kernel mode.
    pub processor: Duration,
    /// Its peak resident memory, in KiB.
    pub peak_kib: u64,
}

/// Runs a command to its end. Returns what it used, and how long it took.
///
/// # Errors
/// It cannot be started, or somebody else waited for it.
pub fn run(command: &mut Command) -> io::Result<(ExitedProcess, Duration)> {
    let began = Instant::now();
    #[allow(clippy::zombie_processes, reason = "`reap` waits for it")]
    let child = command.spawn()?;
    let exited = reap(Some(child.id()))?.ok_or(io::ErrorKind::NotFound)?;
    Ok((exited, began.elapsed()))
}

/// Waits for a child, or for any, and returns its resource usage. None: there is no such child.
///
/// # Errors
/// `wait4` fails.
pub fn reap(child: Option<u32>) -> io::Result<Option<ExitedProcess>> {
    let child = child.map_or(-1, u32::cast_signed);
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::uninit());
    // SAFETY: the kernel writes to `status` and `usage` alone.
    let pid = unsafe { libc::wait4(child, &raw mut status, 0, usage.as_mut_ptr()) };
    if pid < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: `wait4` filled it in, as it returned a child.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok(Some(ExitedProcess {
        status: ExitStatus::from_raw(status),
        processor: time(usage.ru_utime) + time(usage.ru_stime),
        peak_kib: usage.ru_maxrss.unsigned_abs(),
    }))
}

/// Bytes of a file, or of all files below a directory.
///
/// # Errors
/// One of them cannot be read.
pub fn size(path: &Path) -> io::Result<u64> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut sum = 0;
    for entry in fs::read_dir(path)? {
        sum += size(&entry?.path())?;
    }
    Ok(sum)
}
