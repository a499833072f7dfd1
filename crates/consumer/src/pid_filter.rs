//! A recording that is limited to some processes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use usertrace_os::process::pidfd_open;

/// Some processes, by their ids. A pidfd keeps each id meaningful after the process has ended.
#[derive(Debug)]
pub(super) struct PidFilter {
    processes: BTreeMap<u32, OwnedFd>,
}

impl PidFilter {
    /// Opens the processes with these ids, or returns the first id without a process and the error.
    pub(super) fn new(pids: &[u32]) -> Result<Self, (u32, io::Error)> {
        let open = |&pid| match pidfd_open(pid) {
            Ok(fd) => Ok((pid, fd)),
            Err(error) => Err((pid, error)),
        };
        let processes = pids.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { processes })
    }

    /// Whether `name`, PID.NUMBER, is the name of a consumer file of one of them.
    pub(super) fn has(&self, name: &str) -> bool {
        let pid = name.split('.').next().and_then(|pid| pid.parse().ok());
        pid.is_some_and(|pid: u32| self.processes.contains_key(&pid))
    }

    /// Whether all of them have ended.
    pub(super) fn all_ended(&self) -> nix::Result<bool> {
        let processes = self.processes.values();
        let mut fds: Vec<_> = processes
            .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
            .collect();
        let ended = poll(&mut fds, PollTimeout::ZERO)?;
        Ok(usize::try_from(ended) == Ok(fds.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn filter_knows_processes_until_all_have_ended() {
        let mut children: Vec<_> = (0..2)
            .map(|_| Command::new("sleep").arg("1000").spawn().unwrap())
            .collect();
        let pids: Vec<_> = children.iter().map(std::process::Child::id).collect();
        let only = PidFilter::new(&pids).unwrap();
        for child in &mut children {
            assert!(only.has(&format!("{}.7", child.id())));
            assert!(!only.all_ended().unwrap());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(only.all_ended().unwrap());
        for name in ["1.2", "subbuf_size", "", "-1.2"] {
            assert!(!only.has(name), "{name}");
        }
        // These ids have no process, any more or at all.
        for gone in [pids[0], 1 << 30] {
            let (pid, error) = PidFilter::new(&[std::process::id(), gone]).unwrap_err();
            assert_eq!((pid, error.raw_os_error()), (gone, Some(libc::ESRCH)));
        }
    }
}
