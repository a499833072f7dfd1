//! Descriptors of processes.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// A descriptor of a process (`pidfd_open`), which becomes readable when the process ends.
///
/// Once it is open, it means that process alone, also after the id was given to another one.
///
/// # Errors
/// `ESRCH`: there is no such process. `ENOSYS`: the kernel has no such descriptors (before
/// Linux 5.3).
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers, and accesses no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call opened the descriptor, which no other code knows of. It closes on `exec`.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
