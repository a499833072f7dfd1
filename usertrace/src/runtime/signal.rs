//! The update signal (A4).

use std::ptr::{null, null_mut};

extern "C" fn on_update(_: libc::c_int) {
    super::refresh();
}

/// Handles the signal, if nobody else does. False: somebody does, or it cannot be handled.
///
/// A program's own handler stays: such a process gets no update signal, and finds out when it next begins a
/// sub-buffer. `USERTRACE_SIGNAL` chooses another signal.
pub(super) fn install(signo: u32) -> bool {
    let Ok(signo) = libc::c_int::try_from(signo) else {
        return false;
    };
    // SAFETY: zeros are a sigaction, and the handler does what a signal handler may: it neither allocates nor waits,
    // and leaves errno alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signo, null(), &raw mut action) != 0
            || action.sa_sigaction != libc::SIG_DFL
        {
            return false;
        }
        action.sa_sigaction = on_update as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signo, &raw const action, null_mut()) == 0
    }
}
