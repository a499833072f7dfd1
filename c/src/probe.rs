//! Probes, and the control channel: `usertrace/probe.h`.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

use usertrace::control::{self, Mode};
use usertrace::probe::{self, Call, Error};

/// `enum usertrace_probe_error`
fn number(error: Error) -> c_int {
    match error {
        Error::Name | Error::Pattern => -1,
        Error::Exists | Error::Connected => -2,
        Error::NoProbe | Error::NotConnected => -3,
        Error::Busy => -5,
        // And what may come.
        _ => -4,
    }
}

/// A text; what is none is no name of anything.
///
/// # Safety
/// It must end with NUL.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    // SAFETY: the texts end with NUL, and the function stays, as the header asks for.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

/// `probe::register`; 0, or an error.
///
/// # Safety
/// The name must end with NUL; the function must be one that can be called so until it is taken
/// out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_probe_register(
    name: *const c_char,
    call: Call,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the texts end with NUL, and the function stays, as the header asks for.
    let done = unsafe { probe::register(text(name), call, data) };
    done.map_or_else(number, |()| 0)
}

/// `probe::unregister`; 0, or an error.
///
/// # Safety
/// The name must end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_probe_unregister(name: *const c_char) -> c_int {
    // SAFETY: the texts end with NUL, and the function stays, as the header asks for.
    let done = probe::unregister(unsafe { text(name) });
    done.map_or_else(number, |()| 0)
}

/// Functions that change connections.
macro_rules! connections {
    ($($name:ident $does:ident)*) => {$(
        /// How many events there are, or an error.
        ///
        /// # Safety
        /// Both texts must end with NUL.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(events: *const c_char, probe: *const c_char) -> c_long {
            // SAFETY: the texts end with NUL, and the function stays, as the header asks for.
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

/// `control::start`; 0: it is open.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_control_start(signal: c_int) -> c_int {
    let mode = match signal {
        0 => Mode::Thread,
        number => Mode::Signal(number),
    };
    control::start(mode).is_err().into()
}

/// `control::close`; 0: it is closed.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_control_close() -> c_int {
    control::close().is_err().into()
}

/// `control::serve`
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_control_serve() {
    control::serve();
}
