//! Signals, as something to wait for.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// Signals that are passed on to the program: those that people and their tools send.
const FORWARDED: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// `si_code` of signals that the kernel sends, as it does for the keys of a terminal.
const SI_KERNEL: i32 = 0x80;

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// A child changed its state.
    Child,
    /// One to pass on, unless the program, which is in the same process group, got it from the
    /// terminal too.
    Forward { signal: Signal, from_terminal: bool },
}

impl Came {
    /// Passes it on to the program, which the caller has not waited for: its id is not another
    /// process's.
    pub(super) fn pass_on(self, program: &Child) {
        if let Self::Forward {
            signal,
            from_terminal: false,
        } = self
        {
            // Whoever waits for the program sees that it has ended in the meantime.
            let _ = kill(Pid::from_raw(program.id().cast_signed()), signal);
        }
    }

    /// Whether it asks to stop: the program, and, the second time, the recording.
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

/// Takes signals as long as it lives. A program that is started meanwhile inherits that, unless it
/// is told otherwise ([`Signals::not_in`]).
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Begins to take signals, in a process whose other threads block them all.
    pub(super) fn new() -> nix::Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        // It comes with the error that says the same: that a file may get no larger.
        mask.add(Signal::SIGXFSZ);
        for signal in FORWARDED {
            mask.add(signal);
        }
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), Some(&mut before))?;
        Ok(Self { fd, before })
    }

    /// Lets a program take its signals itself, as if this were not there.
    pub(super) fn not_in(&self, command: &mut Command) {
        let before = self.before;
        let restore = move || Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?);
        // SAFETY: between fork and exec, sigprocmask may be called, and nothing else is: it takes
        // no lock and no memory.
        unsafe { command.pre_exec(restore) };
    }

    /// The next signal that came.
    pub(super) fn next(&self) -> nix::Result<Option<Came>> {
        loop {
            let Some(info) = self.fd.read_signal()? else {
                return Ok(None);
            };
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGCHLD) => return Ok(Some(Came::Child)),
                Ok(Signal::SIGXFSZ) => {}
                Ok(signal) => {
                    return Ok(Some(Came::Forward {
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
        // What came in between and was not read, is delivered now: that is what it was sent for.
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn signals_are_taken_and_given_back() {
        let blocked = || {
            let mut mask = SigSet::empty();
            sigprocmask(SigmaskHow::SIG_BLOCK, None, Some(&mut mask)).unwrap();
            mask.contains(Signal::SIGUSR1)
        };
        let signals = Signals::new().unwrap();
        assert!(blocked());
        assert_eq!(signals.next().unwrap(), None);
        raise(Signal::SIGUSR1).unwrap();
        let forward = Came::Forward {
            signal: Signal::SIGUSR1,
            from_terminal: false,
        };
        assert_eq!(signals.next().unwrap(), Some(forward));

        let mut command = Command::new("grep");
        command.args(["SigBlk", "/proc/self/status"]);
        signals.not_in(&mut command);
        let output = command.output().unwrap();
        let mask = String::from_utf8(output.stdout).unwrap();
        assert_eq!(mask.trim_end(), "SigBlk:\t0000000000000000");

        drop(signals);
        assert!(!blocked());
    }
}
