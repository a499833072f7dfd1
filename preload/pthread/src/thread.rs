//! Where a thread begins and ends: its routine is called by one of ours, and a destructor of the
//! thread's is called at its end, whether the routine returns, or the thread calls `pthread_exit`,
//! or is cancelled.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{pthread_attr_t, pthread_key_t, pthread_t};
use usertrace::event_at;

use crate::events;
use crate::next::{self, Start};

/// The thread, as its program knows it.
pub(crate) fn thread() -> u64 {
    // SAFETY: always there.
    unsafe { libc::pthread_self() }
}

/// The key whose destructor is the end, and 1; 0: there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key: before `main`, so that it is one of those that need no memory.
pub(crate) fn prepare() {
    let mut key: pthread_key_t = 0;
    // SAFETY: the destructor works in any thread.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// What a new thread is given, which frees it.
struct Beginning {
    start: Start,
    arg: *mut c_void,
}

/// `pthread_create`, of a thread whose begin and end are events.
///
/// # Safety
/// As the C library's.
pub(crate) unsafe fn create(
    created: *mut pthread_t,
    attr: *const pthread_attr_t,
    start: Start,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: the program's own arguments; and what is allocated is the new thread's, or if there
    // is none, still ours.
    unsafe {
        let beginning = libc::malloc(size_of::<Beginning>()).cast::<Beginning>();
        if beginning.is_null() {
            return next::pthread_create(created, attr, start, arg);
        }
        beginning.write(Beginning { start, arg });
        let result = next::pthread_create(created, attr, begin, beginning.cast());
        if result != 0 {
            libc::free(beginning.cast());
        }
        result
    }
}

/// What such a thread runs. Nothing in it needs to be dropped when the thread ends in the middle of
/// it.
extern "C-unwind" fn begin(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: `create` made it, for this thread.
    let Beginning { start, arg } = unsafe {
        let own = beginning.cast::<Beginning>().read();
        libc::free(beginning);
        own
    };
    // Both events are in the place of the routine, which nothing of the program's calls.
    let routine = start as usize;
    event_at!(routine, events::start, thread(), routine as u64);
    if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key stays. A routine is not at 0, which would be no value.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(routine)) };
    }
    start(arg)
}

extern "C" fn end(routine: *mut c_void) {
    event_at!(routine.addr(), events::end, thread());
}
