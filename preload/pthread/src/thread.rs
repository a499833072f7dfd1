//! The begin and end of threads. A routine of ours calls the thread's routine. A destructor of
//! thread-specific data runs at the end, whether the routine returns, calls `pthread_exit`, or is
//! cancelled.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{pthread_attr_t, pthread_key_t, pthread_t};
use usertrace::event_at;

use crate::events;
use crate::next::{self, Start};

/// The calling thread, as the program identifies it.
pub(crate) fn thread() -> u64 {
    // SAFETY: `pthread_self` has no preconditions.
    unsafe { libc::pthread_self() }
}

/// The key whose destructor marks the end, plus 1; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key. This happens before `main`, so that it is one of the keys that need no memory.
pub(crate) fn prepare() {
    let mut key: pthread_key_t = 0;
    // SAFETY: the destructor can run in any thread.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// Arguments of a new thread, which frees them.
struct StartArgs {
    start: Start,
    arg: *mut c_void,
}

/// Creates a thread whose begin and end are events.
///
/// # Safety
/// As for the C library's function.
pub(crate) unsafe fn create(
    created: *mut pthread_t,
    attr: *const pthread_attr_t,
    start: Start,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are the program's. The allocated memory belongs to the new thread, or
    // still to this one if the call fails.
    unsafe {
        let args = libc::malloc(size_of::<StartArgs>()).cast::<StartArgs>();
        if args.is_null() {
            return next::pthread_create(created, attr, start, arg);
        }
        args.write(StartArgs { start, arg });
        let result = next::pthread_create(created, attr, begin, args.cast());
        if result != 0 {
            libc::free(args.cast());
        }
        result
    }
}

/// Routine of such a thread. Unwinding from any point of it needs to drop nothing.
extern "C-unwind" fn begin(args: *mut c_void) -> *mut c_void {
    // SAFETY: `create` allocated it for this thread.
    let StartArgs { start, arg } = unsafe {
        let own = args.cast::<StartArgs>().read();
        libc::free(args);
        own
    };
    // Both events have the routine's address, as no code of the program calls it.
    let routine = start as usize;
    event_at!(routine, events::start, thread(), routine as u64);
    if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key is never deleted. A routine's address is not 0, so the value is set.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(routine)) };
    }
    start(arg)
}

extern "C" fn end(routine: *mut c_void) {
    event_at!(routine.addr(), events::end, thread());
}
