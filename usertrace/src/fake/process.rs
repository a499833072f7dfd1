//! Runs parts of tests in a child process.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body` in a forked child, whose exit status is 0, or 1 after a panic. The calling process
/// must have one thread.
///
/// # Panics
/// If `fork` fails.
pub fn child(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: this process has one thread, so the child has no locks of other threads.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let done = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: `_exit` ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    pid
}

/// Waits for the end of a child, and returns its status as `waitpid` does.
///
/// # Panics
/// If `pid` is not a child.
#[must_use]
pub fn wait(pid: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: `status` is a local of this function.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}
