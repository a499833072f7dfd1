//! Child processes that are measured, or that are there while something is measured.

use std::ffi::c_int;
use std::fs;
use std::io::{Read, Write, pipe};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::last_error;

/// Runs `body` in a child process, and returns its results.
pub(crate) fn apart<const COUNT: usize>(
    body: impl FnOnce() -> Result<[f64; COUNT]>,
) -> Result<[f64; COUNT]> {
    let (mut from, mut to) = pipe()?;
    let child = fork(|| {
        let numbers = body()?;
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        Ok(to.write_all(&bytes)?)
    })?;
    drop(to);
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    child.join()?;
    let mut numbers = bytes.chunks_exact(8);
    Ok(std::array::from_fn(|_| {
        let bytes = numbers.next().and_then(|bytes| bytes.try_into().ok());
        f64::from_ne_bytes(bytes.expect("the child wrote all numbers"))
    }))
}

/// A child process, which is killed on drop.
pub(crate) struct Process(libc::pid_t);

/// Starts a child that runs `body` and exits.
pub(crate) fn fork(body: impl FnOnce() -> Result<()>) -> Result<Process> {
    // SAFETY: this program has one thread, so the child inherits no lock of another one.
    match unsafe { libc::fork() } {
        -1 => bail!("fork: {}", last_error()),
        0 => {
            let status = match body() {
                Ok(()) => 0,
                Err(e) => {
                    eprintln!("guest-bench: {e:#}");
                    1
                }
            };
            // SAFETY: `_exit` runs no exit handlers, which belong to the parent.
            unsafe { libc::_exit(status) }
        }
        pid => Ok(Process(pid)),
    }
}

/// Starts a child that runs `body`, and returns when that has called its argument.
pub(crate) fn until_ready(
    body: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<()>,
) -> Result<Process> {
    let (mut from, mut to) = pipe()?;
    let process = fork(|| body(&mut || Ok(to.write_all(&[1])?)))?;
    drop(to);
    from.read_exact(&mut [0])
        .context("a process could not request buffers")?;
    Ok(process)
}

/// Waits until the kernel shows all of them as sleeping.
pub(crate) fn all_sleep(processes: &[Process], limit: Duration) -> Result<()> {
    let begun = Instant::now();
    for process in processes {
        while !process.sleeps()? {
            ensure!(begun.elapsed() < limit, "a process does not sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

impl Process {
    /// Waits for its end, which must be successful.
    pub(crate) fn join(self) -> Result<()> {
        let mut status = 0;
        // SAFETY: `status` is writable.
        let pid = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        std::mem::forget(self);
        ensure!(pid > 0, "waitpid: {}", last_error());
        ensure!(status == 0, "a part failed (status {status:#x})");
        Ok(())
    }

    /// Whether the kernel shows it as sleeping.
    fn sleeps(&self) -> Result<bool> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        // The name before the state may contain any character.
        let state = stat.rsplit_once(") ").context("a state")?.1;
        ensure!(
            !state.starts_with('Z'),
            "process {} ended instead of sleeping",
            self.0
        );
        Ok(state.starts_with('S'))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: no code has waited for this child, so the id still names it.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, null_mut(), 0);
        }
    }
}

/// While this exists, no other process preempts this one, not even those that it wakes.
pub(crate) struct Priority;

impl Priority {
    pub(crate) fn raise() -> Result<Self> {
        Self::set(libc::SCHED_FIFO, 1)?;
        Ok(Self)
    }

    fn set(policy: c_int, priority: c_int) -> Result<()> {
        let param = libc::sched_param {
            sched_priority: priority,
        };
        // SAFETY: the call only reads the structure.
        let ret = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
        ensure!(ret == 0, "sched_setscheduler: {}", last_error());
        Ok(())
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        // A process may always return to the default policy.
        let _ = Self::set(libc::SCHED_OTHER, 0);
    }
}
