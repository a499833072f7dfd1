//! Parts of tests that need a process of their own, which has what its parent has.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body` in a child, whose status is 0 then, or 1 if it panics. For tests that have one
/// thread then.
///
/// # Panics
/// If there can be no child.
pub fn child(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child is as complete as this process, whose one thread this is.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let done = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends the process; what the parent has to do at its end is not for the child.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    pid
}

/// Waits for a child's end, and says how that came, as `waitpid` does.
///
/// # Panics
/// If it is no child.
#[must_use]
pub fn wait(pid: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: the status is this function's own.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}
