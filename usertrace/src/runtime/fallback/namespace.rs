//! Traced processes in PID namespaces of their own (`unshare --pid`, `bwrap`).
//!
//! Such a process knows only its id in its own namespace, which another process has in the daemons'
//! namespace. Both see the same inode of the namespace, and `/proc` shows the daemons the ids of
//! each process in all its namespaces.

use std::fs;

use super::header::Entry;
use crate::os::file;
use usertrace_os::procfs;

/// The inode of this process's PID namespace, or [`Entry::UNKNOWN`].
///
/// Unlike [`procfs::pid_namespace`], this is async-signal-safe: it allocates nothing.
pub(super) fn own() -> u64 {
    file::inode(c"/proc/self/ns/pid").unwrap_or(Entry::UNKNOWN)
}

/// Whether this process's parent is in another PID namespace: it is the first process of its own
/// one, or has entered that.
///
/// Async-signal-safe.
pub(super) fn is_entered() -> bool {
    // SAFETY: the call accesses no memory.
    unsafe { libc::getppid() == 0 }
}

/// Ids in the caller's namespace of processes that may have the id `pid` in `namespace`.
///
/// There are several if the caller cannot see the namespaces of some processes.
pub(super) fn candidates(pid: u32, namespace: u64) -> Vec<u32> {
    if namespace == 0 || procfs::pid_namespace("self") == Some(namespace) {
        return vec![pid];
    }
    let is_it = |&outer: &u32| {
        let status = fs::read_to_string(format!("/proc/{outer}/status")).unwrap_or_default();
        let there = procfs::pid_namespace(&outer.to_string());
        innermost_id(&status) == Some(pid)
            && (namespace == Entry::UNKNOWN || there.is_none_or(|there| there == namespace))
    };
    procfs::pids().filter(is_it).collect()
}

/// A process's id in its own namespace, from its file `status`; none if that is the reader's
/// namespace.
fn innermost_id(status: &str) -> Option<u32> {
    let ids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut ids = ids.split_ascii_whitespace();
    ids.next()?;
    ids.next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_id_is_that_of_the_own_namespace() {
        assert_eq!(innermost_id("Name:\tx\nNSpid:\t77\n"), None);
        assert_eq!(innermost_id("Name:\tx\nNSpid:\t77\t1\n"), Some(1));
        assert_eq!(innermost_id("NSpid:\t77\t5\t2\nNSsid:\t1\n"), Some(2));
        assert_eq!(innermost_id(""), None);
    }

    #[test]
    fn ids_of_the_own_namespace_are_taken_as_they_are() {
        let pid = std::process::id();
        assert_eq!(candidates(pid, 0), [pid]);
        assert_eq!(candidates(pid, own()), [pid]);
        assert!(!candidates(pid, Entry::UNKNOWN).contains(&pid));
    }
}
