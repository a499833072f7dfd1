//! Traces calls of the malloc family in unmodified programs:
//!
//! ```sh
//! LD_PRELOAD=libusertrace_malloc.so sqlite3 …
//! ```
//!
//! Each function calls the one that the program would have called, and writes an event of the
//! provider `libc` with sizes and addresses. The event of `free` precedes the call, and all others
//! follow it. So no other thread allocates an address before the trace says that it was freed; a
//! `realloc` that moves is the exception. `reallocarray` and C23's `free_sized` are events of
//! `realloc` and `free`. The context `ip` is the call's return address.
//!
//! Other allocators may be preloaded, too. An allocator after this library gets the calls that are
//! events here. Calls of an allocator before this library are not traced, as they do not reach it.
//!
//! Nothing here allocates, takes a lock, or uses thread-local storage of its own. So an event
//! inside of another event needs no special care, and neither does an allocation in the dynamic
//! linker or in a signal handler. Without a trace, the functions only pass the call on, for another
//! load and branch.

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
