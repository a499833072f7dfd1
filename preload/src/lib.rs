//! Makes calls of the malloc family into events, in programs that know nothing of it:
//!
//! ```sh
//! LD_PRELOAD=libusertrace_malloc.so sqlite3 …
//! ```
//!
//! Each function calls the one that the program would have called, and writes an event of the provider `libc` with
//! sizes and addresses. An event of `free` comes before the call, all others after it, so that an address is never
//! allocated again, by another thread, before the trace says that it was freed; a `realloc` that moves is the exception.
//!
//! Nothing here allocates, takes a lock, or uses thread-local storage of its own, so an event in the middle of another
//! one is no special case, and neither is an allocation while the dynamic linker or a signal handler is at work.
//! Where there is nothing to trace with, the functions only pass on, for a load and a branch more.

mod events;
pub mod interpose;
mod next;

use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;

/// Where a program that has a copy of the crate `usertrace` of its own finds this library's fallback, so that both use
/// one. The crate says what it is.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name for the linker")]
static usertrace_fast: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Runs before the program's own constructors and `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    next::resolve();
    // It says nothing where it cannot trace: the program must not notice.
    let _ = usertrace::init();
}
