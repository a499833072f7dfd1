//! Shows the counters of a trace of the kernel.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use usertrace_consumer::snapshot;
use usertrace_ctf::Version;

use super::collected::Collected;
use super::show::Display;
use crate::kernel_commands;
use crate::root::Root;
use crate::status::DAMAGED;

/// Shows the counters of the trace `name` once, or at each interval until a signal comes or the
/// trace is removed.
pub(super) fn watch(
    root: &Root,
    name: &str,
    interval: Option<Duration>,
    mut display: Display,
) -> anyhow::Result<u8> {
    let control_fs = kernel_commands::STAT.open(root)?;
    control_fs.trace(name)?;
    let stop = StopSignals::new().context("cannot wait for signals")?;
    let mut collected = Collected::default();
    let mut next = Instant::now();
    loop {
        let losses = std::mem::take(&mut collected.lost);
        let directory = tempfile::Builder::new().prefix("usertrace-stat-").tempdir();
        let directory = directory.context("cannot make a temporary directory")?;
        let output = directory.path().join("snapshot");
        let taken = snapshot(&control_fs, name, &output, Version::default());
        let is_removed = control_fs.trace(name).is_err();
        match taken {
            Ok(taken) => {
                // A snapshot of a removed trace lacks files.
                if !is_removed {
                    collected.problems.extend(taken.problems);
                }
                collected.add_any(output);
                // Each snapshot has all losses of processes that are still there.
                collected.lost = collected.lost.max(losses);
            }
            Err(_) if is_removed => collected.lost = losses,
            Err(error) => return Err(error.into()),
        }
        let interval = interval.filter(|_| !is_removed);
        let is_last = interval.is_none();
        let goes_on = display.show(&mut collected, is_last)?;
        let Some(interval) = interval.filter(|_| goes_on) else {
            return Ok(if collected.is_damaged { DAMAGED } else { 0 });
        };
        next = Instant::now().max(next + interval);
        if stop.came_before(next).context("cannot wait")? {
            return Ok(0);
        }
    }
}

/// Signals that end the command.
struct StopSignals(SignalFd);

impl StopSignals {
    fn new() -> nix::Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), None)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        SignalFd::with_flags(&signals, flags).map(Self)
    }

    /// Waits for a signal. False: there was none up to that time.
    fn came_before(&self, time: Instant) -> nix::Result<bool> {
        loop {
            let left = time.saturating_duration_since(Instant::now());
            let millis = left.as_micros().div_ceil(1000);
            let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
                Ok(0) if Instant::now() >= time => return Ok(false),
                Ok(0) => {}
                Ok(_) => return Ok(true),
            }
        }
    }
}
