//! What can be seen of a program from outside.

use std::fs;
use std::path::Path;

/// How a program that runs is to look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// How many are open.
    pub descriptors: usize,
    /// That live, or were not waited for.
    pub children: usize,
    /// The first one, too.
    pub threads: usize,
}

impl Looks {
    /// Those of a process.
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let entries = |name: &str| {
            let directory = Path::new("/proc").join(pid.to_string()).join(name);
            fs::read_dir(directory).expect("a process").count()
        };
        Self {
            descriptors: entries("fd"),
            children: children(pid),
            threads: entries("task"),
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
    fn after(command: &str) -> Looks {
        let script = format!("{command} echo; read line; kill $! 2>/dev/null");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        let mut shell = Running::start(shell.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut output = shell.0.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let looks = Looks::of(shell.0.id());
        drop(shell.0.stdin.take());
        let _ = shell.wait();
        looks
    }

    #[test]
    fn what_is_more_is_seen() {
        let plain = after("");
        assert_eq!((plain.children, plain.threads), (0, 1));
        let descriptors = plain.descriptors + 1;
        let expected = Looks {
            descriptors,
            ..plain
        };
        assert_eq!(after("exec 9</dev/null;"), expected);
        let expected = Looks {
            children: 1,
            ..plain
        };
        assert_eq!(after("sleep 100 &"), expected);
    }
}
