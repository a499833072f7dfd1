//! The list of the process's events (B1).

use std::ffi::{CString, c_char, c_int, c_void};

/// Calls a function for each event that the process can write, until it returns another value than
/// 0. Returns that value, or 0.
///
/// # Safety
/// `each` must be callable with such arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_each_event(
    each: unsafe extern "C" fn(
        description: *const c_char,
        enabled: c_int,
        data: *mut c_void,
    ) -> c_int,
    data: *mut c_void,
) -> c_int {
    for event in usertrace::callsites() {
        // A description is a line of text, so it has no NUL.
        let Ok(description) = CString::new(event.description) else {
            continue;
        };
        // SAFETY: the header requires that the function takes a text and `data`.
        let result = unsafe { each(description.as_ptr(), event.enabled.into(), data) };
        if result != 0 {
            return result;
        }
    }
    0
}
