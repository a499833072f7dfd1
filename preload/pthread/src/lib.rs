//! Makes mutexes, read-write locks, condition variables and threads into events, in programs that
//! know nothing of it:
//!
//! ```sh
//! LD_PRELOAD=libusertrace_pthread.so redis-server …
//! ```
//!
//! Each function calls the one that the program would have called, and writes events of the
//! provider `pthread`. All have the address of what they are about, and the thread's
//! `pthread_self()`, by which they belong together:
//!
//! - What may wait is two events, `…_req` before it and `…_acq`, or `…_done`, with the result after
//!   it. Between those two events of one thread, it waited. A thread that is cancelled while it
//!   waits has the first one only.
//! - What gives something away (`…_unlock`, `cond_signal`, `cond_broadcast`) is an event before the
//!   call, so that nobody has it, or is woken, before the trace says why. If the call fails,
//!   `…_failed` follows, with the result.
//! - What neither waits nor gives anything away (`…_try…`, `create`) is an event after the call,
//!   with the result.
//! - `start` and `end` are of a thread itself: before its routine, and after it returned, or was
//!   left by `pthread_exit` or by being cancelled. The thread may begin before `create` says that
//!   it was made. Destructors of thread-specific data may still run after `end`. Threads that were
//!   there before a trace wanted these two have neither, and so has the first one.
//!
//! The context `ip` is the address that the program's call returns to; of `start` and `end`, that
//! of the routine.
//!
//! A condition's wait gives the mutex away, and has it again at the end, without events of the
//! mutex's own.
//!
//! What the C library and the dynamic linker lock themselves is not seen, as they do not call their
//! functions by name; neither are the threads and mutexes of C11.
//!
//! Nothing here takes a lock, or uses thread-local storage of its own, but for a key by which `end`
//! is called; and nothing allocates, but for the two words that a new thread is given where a trace
//! wants `start` or `end`. As long as no trace wants the events, a function is two loads, a branch
//! and a jump.

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
