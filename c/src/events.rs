//! Registry of call sites: constructors in `usertrace.h` register those of the program and its
//! libraries.

use std::sync::atomic::{AtomicUsize, Ordering};

use usertrace::__private::{self, Entry};

/// Number of registered entries that were invalid, since the program began.
static BAD_EVENTS: AtomicUsize = AtomicUsize::new(0);

/// Registers the events of a program or library.
///
/// # Safety
/// The range from `start` to `stop` must have pointers to call sites, or NULL. They must stay until
/// they are unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_register(start: *const Entry, stop: *const Entry) {
    // SAFETY: the header's constructor passes the linker's bounds of the section.
    count_bad(unsafe { __private::register(start, stop) });
}

/// Counts events that cannot be described.
pub(crate) fn count_bad(events: usize) {
    BAD_EVENTS.fetch_add(events, Ordering::Relaxed);
}

/// Unregisters the events of a program or library.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_unregister(start: *const Entry, stop: *const Entry) {
    __private::unregister(start, stop);
}

/// Returns the number of declared events that cannot be described, since the program began.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_bad_events() -> usize {
    BAD_EVENTS.load(Ordering::Relaxed)
}
