//! The list of events (B1).

use std::ffi::{CString, c_char, c_int, c_void};

/// Calls a function for each event that can be written, until it says something else than 0, and
/// says that.
///
/// # Safety
/// The function must be one that can be called so.
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
        // It has no NUL, as it is a line of text.
        let Ok(description) = CString::new(event.description) else {
            continue;
        };
        // SAFETY: the function takes a text and `data`, as the header asks for.
        let said = unsafe { each(description.as_ptr(), event.enabled.into(), data) };
        if said != 0 {
            return said;
        }
    }
    0
}
