//! Callsites of the program and its libraries, which constructors in `usertrace.h` register.

use std::sync::atomic::{AtomicUsize, Ordering};

use usertrace::event::{self, Entry};

/// Entries that were no events, since the program began.
static UNSOUND: AtomicUsize = AtomicUsize::new(0);

/// Adds the events of a program or library.
///
/// # Safety
/// From `start` up to `stop` there must be pointers to callsites, or NULL, which stay until they
/// are taken out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_register(start: *const Entry, stop: *const Entry) {
    // SAFETY: the section's bounds are the linker's, which the header's constructor gives.
    count_bad(unsafe { event::register(start, stop) });
}

/// Counts events that cannot be described.
pub(crate) fn count_bad(events: usize) {
    UNSOUND.fetch_add(events, Ordering::Relaxed);
}

/// Takes the events of a program or library out.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_unregister(start: *const Entry, stop: *const Entry) {
    event::unregister(start, stop);
}

/// How many events were declared that cannot be described, since the program began.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_bad_events() -> usize {
    UNSOUND.load(Ordering::Relaxed)
}
