//! The thread that serves the control channel.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use syscalls::Errno;

use super::opened::control;
use super::state::CLIENTS;
use crate::os::signal::SignalMaskGuard;

/// Milliseconds until the thread retries after a failure, for example without free file
/// descriptors.
const RETRY_INTERVAL: libc::c_int = 100;

/// Starts the thread for this opening of the channel, also in the child of a `fork`.
pub(super) fn start(opening: u32) -> Result<(), Errno> {
    // The new thread inherits the mask: all signals blocked.
    let _held = SignalMaskGuard::new();
    let mut thread = 0;
    // SAFETY: `serve` takes a number in place of a pointer. The thread is detached, so it needs no
    // join.
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
    // Each opening has its own thread; a later one ends this one.
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
        // SAFETY: the array has `count` elements.
        unsafe { libc::poll(sockets.as_mut_ptr(), count, -1) };
        control.serve(true);
        // A controller that still waits after this could not be accepted: there is no free
        // descriptor.
        let waits = |entry: &mut libc::pollfd| {
            // SAFETY: the pointer is to one element.
            unsafe { libc::poll(entry, 1, 0) > 0 }
        };
        if control.listener.get().is_some() && waits(&mut sockets[0]) {
            // SAFETY: no elements are passed.
            unsafe { libc::poll(std::ptr::null_mut(), 0, RETRY_INTERVAL) };
        }
    }
    std::ptr::null_mut()
}
