//! Descriptors, children and threads of a program, as `/proc` shows them.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

/// Counts that must not change while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcSnapshot {
    /// Open descriptors, without one by which the program reads its own `/proc/PID/stat`.
    pub descriptors: usize,
    /// Children that live, or were not reaped.
    pub children: usize,
    /// Threads, the main thread included.
    pub threads: usize,
}

impl ProcSnapshot {
    /// The counts of a process.
    ///
    /// # Panics
    /// If the process does not exist.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let process = Path::new("/proc").join(pid.to_string());
        let entries = |name: &str| fs::read_dir(process.join(name)).expect("a process");
        // redis-server reads its own `stat` ten times a second.
        let stat = process.join("stat");
        let stays = |entry: io::Result<DirEntry>| {
            let target = entry.and_then(|entry| fs::read_link(entry.path()));
            target.is_ok_and(|target| target != stat)
        };
        Self {
            descriptors: entries("fd").map(stays).filter(|stays| *stays).count(),
            children: children(pid),
            threads: entries("task").count(),
        }
    }
}

/// Counts children by the parents of all processes: not all kernels list children.
fn children(pid: u32) -> usize {
    let parent = format!("PPid:\t{pid}");
    let has_parent = |path: &Path| {
        let status = fs::read_to_string(path.join("status"));
        status.is_ok_and(|status| status.lines().any(|line| line == parent))
    };
    fs::read_dir("/proc")
        .expect("/proc")
        .filter(|entry| {
            let entry = entry.as_ref().expect("an entry");
            has_parent(&entry.path())
        })
        .count()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::running::Running;

    /// A snapshot of a shell after a command. Other tests open files in this process, so it cannot
    /// be the one that is looked at.
    fn after(command: &str) -> ProcSnapshot {
        let script = format!("{command} echo; read line; kill $! 2>/dev/null");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        let mut shell = Running::start(shell.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut output = shell.0.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let looks = ProcSnapshot::of(shell.0.id());
        drop(shell.0.stdin.take());
        let _ = shell.wait();
        looks
    }

    #[test]
    fn additional_descriptors_and_children_are_counted() {
        let plain = after("");
        assert_eq!((plain.children, plain.threads), (0, 1));
        let descriptors = plain.descriptors + 1;
        let expected = ProcSnapshot {
            descriptors,
            ..plain
        };
        assert_eq!(after("exec 9</dev/null;"), expected);
        assert_eq!(after("exec 9</proc/$$/stat;"), plain);
        let expected = ProcSnapshot {
            children: 1,
            ..plain
        };
        assert_eq!(after("sleep 100 &"), expected);
    }
}
