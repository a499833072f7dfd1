//! What the kernel says of processes below `/proc`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Process ids, of all processes that there are.
pub fn pids() -> impl Iterator<Item = u32> {
    numbers("/proc")
}

/// The name of a process as the kernel has it, at most 15 bytes; empty if it has ended.
#[must_use]
pub fn name(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()
}

/// Process ids of the children of a process: of none if it has ended, or if the kernel does not
/// list children (`CONFIG_PROC_CHILDREN`).
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for thread in numbers(&format!("/proc/{pid}/task")) {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"));
        let list = list.unwrap_or_default();
        children.extend(
            list.split_ascii_whitespace()
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    children
}

/// The entries of a directory that are numbers.
fn numbers(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// When a process began, in clock ticks since boot.
pub fn start_ticks(pid: u32) -> Option<u64> {
    stat(&format!("/proc/{pid}/stat"), 19)?.parse().ok()
}

/// One of the fields behind the name of a process or thread.
fn stat(path: &str, field: usize) -> Option<String> {
    let stat = fs::read_to_string(path).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace()
        .nth(field)
        .map(ToOwned::to_owned)
}

/// No thread of a process runs any more, whether or not its parent has looked at it.
pub fn has_ended(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        // It has been looked at, or there is no /proc here.
        // SAFETY: no signal is sent.
        let sent = unsafe { libc::kill(pid as libc::pid_t, 0) };
        return sent != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    };
    threads.flatten().all(|thread| {
        let state = stat(&format!("{}/stat", thread.path().display()), 0);
        state.is_none_or(|state| matches!(state.as_str(), "Z" | "X"))
    })
}

/// Inode of the PID namespace that a process, or `self`, is in; nothing if that cannot be told.
pub fn pid_namespace(process: &str) -> Option<u64> {
    let file = fs::metadata(format!("/proc/{process}/ns/pid")).ok()?;
    Some(file.ino())
}

/// The machine's name, in this UTS namespace; nothing without `/proc`.
#[must_use]
pub fn hostname() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_owned())
}

/// The time namespace that this process is in, as the link in `/proc` names it: `CLOCK_MONOTONIC`
/// is the same for all processes in it. Empty if the kernel has no such namespaces.
#[must_use]
pub fn time_namespace() -> OsString {
    fs::read_link("/proc/self/ns/time").map_or(OsString::new(), PathBuf::into_os_string)
}

/// Device and inode of what a line of a file `maps` says is mapped.
pub fn device_and_inode(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace().skip(3);
    Some(format!("{} {}", words.next()?, words.next()?))
}
