//! Traces calls of `dlopen`, `dlmopen` and `dlclose` in unmodified programs:
//!
//! ```sh
//! LD_PRELOAD=libusertrace_dl.so python3 …
//! ```
//!
//! | event | when | |
//! |---|---|---|
//! | `dl:dlopen_req` | before the call | the arguments, and the caller: the call's return address |
//! | `dl:dlopen` | after it, if it could be watched | the handle, and base address and path of the object |
//! | `dl:dlmopen_req`, `dl:dlmopen` | likewise | and the namespace |
//! | `dl:dlclose_req`, `dl:dlclose` | before and after the call | the handle, and the result |
//!
//! The C library searches for a library on behalf of the calling object, which it finds by the
//! return address: `$ORIGIN` and `RUNPATH` are those of that object. A function in between would be
//! another caller. So if the caller may matter (see `caller.rs`), this library jumps to the C
//! library's function with the return address in place. The program gets the same result as without
//! this library, and the trace has no `dl:dlopen` for that `dl:dlopen_req`. In all other cases this
//! library calls the function.
//!
//! The context `ip` is the call's return address.
//!
//! Events have names and paths up to the first byte that is not UTF-8.

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
