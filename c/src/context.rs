//! Contexts: what `usertrace/context.h` declares, and where events are.

use std::ffi::{CStr, c_char, c_int};

use usertrace::context::{self, DefineError};
use usertrace::event::{Callsite, set_ip};

/// `usertrace::context::define`; 0, or a negative number.
///
/// # Safety
/// `name` must be a C string, and `read` what `usertrace/context.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_context_define(
    name: *const c_char,
    read: extern "C" fn() -> u64,
) -> c_int {
    // SAFETY: the name ends with NUL, as the header asks for.
    let name = unsafe { CStr::from_ptr(name) };
    // What is no text is no name either.
    let name = name.to_str().unwrap_or_default();
    // SAFETY: the header asks the same of `read`.
    match unsafe { context::define(name, read) } {
        Ok(()) => 0,
        Err(DefineError::TooMany) => -2,
        Err(_) => -1,
    }
}

/// `usertrace::context::renew`.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_context_renew() {
    context::renew();
}

/// Sets the address of the next event.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_note(callsite: &Callsite, place: usize) {
    set_ip(callsite, place);
}
