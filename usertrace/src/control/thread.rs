//! The thread of the control channel.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use syscalls::Errno;

use super::opened::control;
use super::state::CLIENTS;
use crate::runtime::signals::SignalMaskGuard;

/// Milliseconds until it is tried again what could not be done, as where there are no descriptors
/// left.
const PATIENCE: libc::c_int = 100;

/// Starts it, for this opening of the channel. Also in the child of a `fork`.
pub(super) fn start(opening: u32) -> Result<(), Errno> {
    // The thread has this one's mask.
    let _held = SignalMaskGuard::new();
    let mut thread = 0;
    // SAFETY: the function takes a number. Nobody waits for the thread's end.
    let error = unsafe {
        let error = libc::pthread_create(
            &raw mut thread,
            std::ptr::null(),
            serve,
            std::ptr::without_provenance_mut(opening as usize),
        );
        if error == 0 {
            libc::pthread_detach(thread);
        }
        error
    };
    match error {
        0 => Ok(()),
        error => Err(Errno::new(error)),
    }
}

extern "C" fn serve(opening: *mut c_void) -> *mut c_void {
    // SAFETY: the name ends with NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"usertrace-ctl".as_ptr()) };
    // Another opening has another thread.
    while let Some(control) = control()
        && let Some(listener) = control.listener.get()
        && control.openings.load(Ordering::Relaxed) as usize == opening.addr()
    {
        let mut sockets = [libc::pollfd {
            fd: -1,
            events: libc::POLLIN,
            revents: 0,
        }; CLIENTS + 1];
        sockets[0].fd = listener;
        for (entry, controller) in sockets[1..].iter_mut().zip(&control.controllers) {
            entry.fd = controller.socket.get().unwrap_or(-1);
        }
        let count = sockets.len() as libc::nfds_t;
        // SAFETY: there are so many.
        unsafe { libc::poll(sockets.as_mut_ptr(), count, -1) };
        control.serve(true);
        // A controller that came is not there now, but waits still: there is no descriptor for it.
        let waits = |entry: &mut libc::pollfd| {
            // SAFETY: there is one.
            unsafe { libc::poll(entry, 1, 0) > 0 }
        };
        if control.listener.get().is_some() && waits(&mut sockets[0]) {
            // SAFETY: there is none.
            unsafe { libc::poll(std::ptr::null_mut(), 0, PATIENCE) };
        }
    }
    std::ptr::null_mut()
}
