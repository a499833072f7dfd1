//! Contexts: what `usertrace/context.h` declares, and where events are.

use std::ffi::{CStr, c_char, c_int};

use usertrace::context::{self, DefineError};
use usertrace::event::{Callsite, note};

/// `usertrace::context::define`; 0, or a negative number.
///
/// # Safety
/// `name` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_context_define(
    name: *const c_char,
    read: extern "C" fn() -> u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    // What is no text is no name either.
    match context::define(name.to_str().unwrap_or_default(), read) {
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

/// Notes where it is called from, for the event that follows.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn usertrace_here(callsite: &Callsite) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rsi, qword ptr [rsp]", "jmp {}", sym note_from);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x1, x30", "b {}", sym note_from);
}

extern "C" fn note_from(callsite: &Callsite, ip: usize) {
    note(callsite, ip);
}
