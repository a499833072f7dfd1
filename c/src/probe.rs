//! Probes and the control channel: the functions of `usertrace/probe.h`.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

use usertrace::control::{self, Mode};
use usertrace::probe::{self, Call, Error};

/// The `enum usertrace_probe_error` of an error.
fn number(error: Error) -> c_int {
    match error {
        Error::Name | Error::Pattern => -1,
        Error::Exists | Error::Connected => -2,
        Error::NoProbe | Error::NotConnected => -3,
        Error::Busy => -5,
        // No room, and errors that later versions add.
        _ => -4,
    }
}

/// A C string as text; empty, and so an invalid name, if it is not UTF-8.
///
/// # Safety
/// The text must end with NUL.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    // SAFETY: the header requires that texts end with NUL, and that the function stays.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

/// Calls `probe::register`. Returns 0, or an error.
///
/// # Safety
/// The name must end with NUL. The function must be callable until it is unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_probe_register(
    name: *const c_char,
    call: Call,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the header requires that texts end with NUL, and that the function stays.
    let done = unsafe { probe::register(text(name), call, data) };
    done.map_or_else(number, |()| 0)
}

/// Calls `probe::unregister`. Returns 0, or an error.
///
/// # Safety
/// The name must end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_probe_unregister(name: *const c_char) -> c_int {
    // SAFETY: the header requires that texts end with NUL, and that the function stays.
    let done = probe::unregister(unsafe { text(name) });
    done.map_or_else(number, |()| 0)
}

/// Defines the functions that change connections.
macro_rules! connections {
    ($($name:ident $does:ident)*) => {$(
        /// Returns the number of events, or an error.
        ///
        /// # Safety
        /// Both texts must end with NUL.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(events: *const c_char, probe: *const c_char) -> c_long {
            // SAFETY: the header requires that texts end with NUL, and that the function stays.
            let done = unsafe { probe::$does(text(events), text(probe)) };
            done.map_or_else(|error| number(error).into(), |count| count as c_long)
        }
    )*};
}

connections! {
    usertrace_probe_connect connect
    usertrace_probe_disconnect disconnect
    usertrace_probe_activate activate
    usertrace_probe_deactivate deactivate
}

/// Calls `control::start`. Returns 0 if the channel is open.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_control_start(signal: c_int) -> c_int {
    let mode = match signal {
        0 => Mode::Thread,
        number => Mode::Signal(number),
    };
    control::start(mode).is_err().into()
}

/// Calls `control::close`. Returns 0 if the channel is closed.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_control_close() -> c_int {
    control::close().is_err().into()
}

/// Calls `control::serve`.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_control_serve() {
    control::serve();
}
