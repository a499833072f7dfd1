//! Contexts: the functions of `usertrace/context.h`, and the addresses of events.

use std::ffi::{CStr, c_char, c_int};

use usertrace::__private::{set_ip, set_ip_of_caller};
use usertrace::Callsite;
use usertrace::context::{self, DefineError};

/// Calls `usertrace::context::define`. Returns 0, or an `enum usertrace_context_error`.
///
/// # Safety
/// `name` must be a C string, and `read` must follow the rules of `usertrace/context.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_context_define(
    name: *const c_char,
    read: extern "C" fn() -> u64,
) -> c_int {
    // SAFETY: the header requires that the name ends with NUL.
    let name = unsafe { CStr::from_ptr(name) };
    // A name that is not UTF-8 becomes empty, which is invalid.
    let name = name.to_str().unwrap_or_default();
    // SAFETY: the header requires the same of `read` as `define`: it is async-signal-safe.
    match unsafe { context::define(name, read) } {
        Ok(()) => 0,
        Err(DefineError::TooMany) => -2,
        Err(_) => -1,
    }
}

/// Calls `usertrace::context::renew`.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_context_renew() {
    context::renew();
}

/// Sets the address of the event that follows, and the frame of the caller.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_note(callsite: &Callsite, ip: usize) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("jmp {set_ip}", set_ip = sym set_ip);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("b {set_ip}", set_ip = sym set_ip);
}

/// Sets the address of the event that follows, in the function that called the caller.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_note_caller(callsite: &Callsite, ip: usize) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("jmp {set}", set = sym set_ip_of_caller);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("b {set}", set = sym set_ip_of_caller);
}
