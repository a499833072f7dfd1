//! Makes calls of the malloc family into events, in programs that know nothing of it:
//!
//! ```sh
//! LD_PRELOAD=libusertrace_malloc.so sqlite3 …
//! ```
//!
//! Each function calls the one that the program would have called, and writes an event of the
//! provider `libc` with sizes and addresses. An event of `free` comes before the call, all others
//! after it, so that an address is never allocated again, by another thread, before the trace says
//! that it was freed; a `realloc` that moves is the exception. `reallocarray` and C23's
//! `free_sized` are events of `realloc` and `free`. The context `ip` is the address that the
//! program's call returns to.
//!
//! Other allocators may be preloaded, too. One behind this library gets the calls that are events
//! here; of one before it no event tells, as nothing of it comes here.
//!
//! Nothing here allocates, takes a lock, or uses thread-local storage of its own, so an event in
//! the middle of another one is no special case, and neither is an allocation while the dynamic
//! linker or a signal handler is at work. Where there is nothing to trace with, the functions only
//! pass on, for a load and a branch more.

mod events;
pub mod interpose;
mod next;
pub mod other_names;
mod traced;

/// Runs before the program's own constructors and `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    usertrace_next::resolve(next::first::ALL);
    usertrace_next::start(next::ALL);
}
