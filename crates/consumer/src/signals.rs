//! Signals through a `signalfd`: which ones a recorder forwards, and which ask it to stop.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// Signals that are forwarded to the program: those that people and their tools send.
const FORWARDED: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// `si_code` of signals from the kernel, such as those of a terminal's keys.
const SI_KERNEL: i32 = 0x80;

/// A signal that this process received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceivedSignal {
    /// A child changed its state.
    Child,
    /// A signal to forward. The terminal sends it to the whole process group, and so to the program
    /// as well.
    Forward { signal: Signal, from_terminal: bool },
}

impl ReceivedSignal {
    /// Forwards it to the program, unless the terminal did. The caller has not waited for the
    /// program yet, so the process id is not reused.
    pub(super) fn forward_to(self, program: &Child) {
        if let Self::Forward {
            signal,
            from_terminal: false,
        } = self
        {
            // The program may have ended; the caller learns that when it waits.
            let _ = kill(Pid::from_raw(program.id().cast_signed()), signal);
        }
    }

    /// Whether it asks to stop the program, and, the second time, the recording.
    pub(super) fn asks_to_stop(self) -> bool {
        matches!(
            self,
            Self::Forward {
                signal: Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP,
                ..
            }
        )
    }
}

/// Blocks signals and reads them from a descriptor, until it is dropped. Programs inherit the
/// signal mask, unless [`restore_mask_in`](Self::restore_mask_in) prepares them.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Starts to receive signals. All other threads of the process must block them.
    pub(super) fn new() -> nix::Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        // Comes with an `EFBIG` error, which is handled.
        mask.add(Signal::SIGXFSZ);
        for signal in FORWARDED {
            mask.add(signal);
        }
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), Some(&mut before))?;
        Ok(Self { fd, before })
    }

    /// Makes a program start with the signal mask from before.
    pub(super) fn restore_mask_in(&self, command: &mut Command) {
        let before = self.before;
        let restore = move || Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?);
        // SAFETY: the closure runs between fork and exec, and only calls sigprocmask, which is
        // async-signal-safe: it takes no lock and allocates no memory.
        unsafe { command.pre_exec(restore) };
    }

    /// The next received signal, if any.
    pub(super) fn next(&self) -> nix::Result<Option<ReceivedSignal>> {
        loop {
            let Some(info) = self.fd.read_signal()? else {
                return Ok(None);
            };
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGCHLD) => return Ok(Some(ReceivedSignal::Child)),
                Ok(Signal::SIGXFSZ) => {}
                Ok(signal) => {
                    return Ok(Some(ReceivedSignal::Forward {
                        signal,
                        from_terminal: info.ssi_code == SI_KERNEL,
                    }));
                }
                Err(Errno::EINVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::os::fd::AsFd for Signals {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Delivers signals that were blocked and not read.
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn signals_are_blocked_and_restored() {
        let blocked = || {
            let mut mask = SigSet::empty();
            sigprocmask(SigmaskHow::SIG_BLOCK, None, Some(&mut mask)).unwrap();
            mask.contains(Signal::SIGUSR1)
        };
        let signals = Signals::new().unwrap();
        assert!(blocked());
        assert_eq!(signals.next().unwrap(), None);
        raise(Signal::SIGUSR1).unwrap();
        let forward = ReceivedSignal::Forward {
            signal: Signal::SIGUSR1,
            from_terminal: false,
        };
        assert_eq!(signals.next().unwrap(), Some(forward));

        let mut command = Command::new("grep");
        command.args(["SigBlk", "/proc/self/status"]);
        signals.restore_mask_in(&mut command);
        let output = command.output().unwrap();
        let mask = String::from_utf8(output.stdout).unwrap();
        assert_eq!(mask.trim_end(), "SigBlk:\t0000000000000000");

        drop(signals);
        assert!(!blocked());
    }
}
