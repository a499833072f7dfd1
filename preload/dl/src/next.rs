//! The interposed functions: those of the C library, or of another preloaded library.

use std::ffi::{c_char, c_int, c_void};

usertrace_next::next! {
    dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    dlmopen(namespace: libc::Lmid_t, name: *const c_char, flags: c_int) -> *mut c_void;
    dlclose(handle: *mut c_void) -> c_int;
}
