//! What can be seen of a program from outside.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

/// How a program that runs is to look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcSnapshot {
    /// How many are open, but for one in which it looks at itself.
    pub descriptors: usize,
    /// That live, or were not waited for.
    pub children: usize,
    /// The first one, too.
    pub threads: usize,
}

impl ProcSnapshot {
    /// Those of a process.
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let process = Path::new("/proc").join(pid.to_string());
        let entries = |name: &str| fs::read_dir(process.join(name)).expect("a process");
        // Some programs look at their own memory now and then: redis-server does so ten times a
        // second.
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

/// Not all kernels list them.
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

    /// How a shell looks after a command, from outside: other tests open files in this process.
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
    fn what_is_more_is_seen() {
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
