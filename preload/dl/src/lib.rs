//! Makes `dlopen`, `dlmopen` and `dlclose` into events, in programs that know nothing of it:
//!
//! ```sh
//! LD_PRELOAD=libusertrace_dl.so python3 …
//! ```
//!
//! | event | when | |
//! |---|---|---|
//! | `dl:dlopen_req` | before the call | what is asked for, and by whom: the address that the call returns to |
//! | `dl:dlopen` | after it, if it could be watched | the handle, and base address and path of what was loaded |
//! | `dl:dlmopen_req`, `dl:dlmopen` | likewise | and the namespace |
//! | `dl:dlclose_req`, `dl:dlclose` | before and after the call | the handle, and the result |
//!
//! The C library searches for a library on behalf of the object whose code calls `dlopen`, which it
//! tells by the return address: `$ORIGIN` and `RUNPATH` are those of that object. A function that
//! stands in between is another caller. So where it could matter who calls (`caller.rs` says when),
//! the C library's function is jumped to with the return address in its place. The program gets
//! what it would have got without us, and the trace has no `dl:dlopen` for that `dl:dlopen_req`. In
//! all other cases it is called from here.
//!
//! The context `ip` is the address that the call returns to.
//!
//! Names and paths are in the events up to the first byte that is not UTF-8.

mod caller;
mod events;
pub mod interpose;
mod next;

/// Runs before the program's own constructors and `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    usertrace_next::start(next::ALL);
}
