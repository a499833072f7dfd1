//! Traces mutexes, read-write locks, condition variables and threads in unmodified programs:
//!
//! ```sh
//! LD_PRELOAD=libusertrace_pthread.so redis-server …
//! ```
//!
//! Each function calls the one that the program would have called, and writes events of the
//! provider `pthread`. All events have the address of their object, and the thread's
//! `pthread_self()`, by which they belong together:
//!
//! - A call that may wait makes two events: `…_req` before it, and `…_acq` or `…_done` with the
//!   result after it. Between these two events, the thread waited. A thread that is cancelled while
//!   it waits has only the first one.
//! - A call that releases something (`…_unlock`, `cond_signal`, `cond_broadcast`) makes an event
//!   before it. So no other thread owns the object, or wakes up, before the trace says why. If the
//!   call fails, `…_failed` follows, with the result.
//! - Other calls (`…_try…`, `create`) make an event after them, with the result.
//! - A thread makes `start` before its routine, and `end` after it returned, called `pthread_exit`,
//!   or was cancelled. `start` may precede `create`. Destructors of thread-specific data may still
//!   run after `end`. The first thread has neither event, nor have threads from before a trace
//!   wanted them.
//!
//! The context `ip` is the call's return address; for `start` and `end`, the address of the
//! routine.
//!
//! Waiting for a condition releases the mutex and takes it again, without events of the mutex.
//!
//! Locks of the C library and of the dynamic linker are not traced, since they do not call their
//! functions by name. Neither are the threads and mutexes of C11.
//!
//! Nothing here takes a lock, or uses thread-local storage of its own, other than a key for `end`.
//! Nothing allocates, other than two words for a new thread if a trace wants `start` or `end`. As
//! long as no trace wants the events, a function costs two loads, a branch and a jump.

mod events;
pub mod interpose;
mod next;
mod thread;

/// Runs before the program's own constructors and `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    usertrace_next::start(next::ALL);
    thread::prepare();
}
