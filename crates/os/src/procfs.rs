//! Reads about processes in `/proc`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The ids of all processes.
pub fn pids() -> impl Iterator<Item = u32> {
    numbers("/proc")
}

/// The name of a process in the kernel, at most 15 bytes; empty if the process has ended.
#[must_use]
pub fn name(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()
}

/// The ids of a process's children. Empty if it has ended, or the kernel does not list children
/// (`CONFIG_PROC_CHILDREN`).
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

/// The numeric entries of a directory.
fn numbers(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The file with the id of the machine's boot.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The id of the machine's boot. None without `/proc`.
#[must_use]
pub fn boot_id() -> Option<[u8; 16]> {
    let text = fs::read_to_string(BOOT_ID).ok()?;
    let digits = text.trim_end().replace('-', "");
    let is_valid = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_valid.then(|| u128::from_str_radix(&digits, 16).ok())?;
    Some(number?.to_be_bytes())
}

/// The start time of a process, in clock ticks since boot.
pub fn start_ticks(pid: u32) -> Option<u64> {
    stat(&format!("/proc/{pid}/stat"), 19)?.parse().ok()
}

/// One of the fields after the name in a `stat` file.
fn stat(path: &str, field: usize) -> Option<String> {
    let stat = fs::read_to_string(path).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace()
        .nth(field)
        .map(ToOwned::to_owned)
}

/// Whether all threads of a process have ended, even if its parent has not waited for it yet.
pub fn has_ended(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        // The parent has waited for the process, or there is no `/proc`.
        // SAFETY: signal 0 is never sent, and the call accesses no memory of this process.
        let sent = unsafe { libc::kill(pid as libc::pid_t, 0) };
        return sent != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    };
    threads.flatten().all(|thread| {
        let state = stat(&format!("{}/stat", thread.path().display()), 0);
        state.is_none_or(|state| matches!(state.as_str(), "Z" | "X"))
    })
}

/// The inode of the PID namespace of a process, or of `self`. `None` if it cannot be read.
pub fn pid_namespace(process: &str) -> Option<u64> {
    let file = fs::metadata(format!("/proc/{process}/ns/pid")).ok()?;
    Some(file.ino())
}

/// The host name in this UTS namespace. `None` without `/proc`.
#[must_use]
pub fn hostname() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_owned())
}

/// The time namespace of this process, as the link in `/proc` names it. All processes in it have
/// the same `CLOCK_MONOTONIC`. Empty if the kernel has no time namespaces.
#[must_use]
pub fn time_namespace() -> OsString {
    fs::read_link("/proc/self/ns/time").map_or(OsString::new(), PathBuf::into_os_string)
}

/// Device and inode of the file in a line of `/proc/PID/maps`.
pub fn device_and_inode(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace().skip(3);
    Some(format!("{} {}", words.next()?, words.next()?))
}
