//! Traces the functions of programs that were built with `-finstrument-functions`:
//!
//! ```sh
//! cc -finstrument-functions -o program program.c
//! LD_PRELOAD=libusertrace_function.so ./program
//! ```
//!
//! The compiler makes each function call `__cyg_profile_func_enter` at its beginning, and
//! `__cyg_profile_func_exit` at its end. The C library's versions do nothing; these write the
//! events `function:entry` and `function:exit`, with the addresses of the function and of its call.
//! The context `ip` is an address in the function. A program that defines these two functions
//! itself still calls its own.
//!
//! Nothing here allocates, takes a lock, or uses thread-local storage. As long as no trace wants
//! the events, a function costs a load and a branch.

use std::ffi::c_void;

use usertrace::__private::Caller;
use usertrace::event_at;

mod events {
    usertrace_next::events! { "function":
        entry "entry" { function: x64, call_site: x64 }
        exit "exit" { function: x64, call_site: x64 }
    }
}

usertrace_next::interpose! {
    /// Called when a function begins.
    #[unsafe(no_mangle)]
    pub fn __cyg_profile_func_enter(function: *mut c_void, call_site: *mut c_void) = enter;
    /// Called when a function ends.
    #[unsafe(no_mangle)]
    pub fn __cyg_profile_func_exit(function: *mut c_void, call_site: *mut c_void) = exit;
}

unsafe extern "C-unwind" fn enter(function: *mut c_void, call_site: *mut c_void, caller: Caller) {
    let (function, call_site) = (function.addr() as u64, call_site.addr() as u64);
    event_at!(caller, events::entry, function, call_site);
}

unsafe extern "C-unwind" fn exit(function: *mut c_void, call_site: *mut c_void, caller: Caller) {
    let (function, call_site) = (function.addr() as u64, call_site.addr() as u64);
    event_at!(caller, events::exit, function, call_site);
}

/// Runs before the program's own constructors and `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    usertrace_next::start(&[]);
}
