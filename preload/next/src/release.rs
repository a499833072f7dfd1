//! Which stacks the events of releases have, such as those of `free` and of unlocking.
//!
//! A stack says who has something: that of the event that got it. One for the release, too, would
//! double the time and the size of a trace.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use usertrace::__private::{Caller, GivenPlace};

/// The variable that asks for whole stacks of all events, by the value `all`.
const VARIABLE: &CStr = c"USERTRACE_STACKS";

/// Whether all events have whole stacks. Relaxed: nothing else depends on it.
static ALL: AtomicBool = AtomicBool::new(false);

/// Reads the variable. The program's constructors and threads come later.
pub(crate) fn start() {
    // SAFETY: `getauxval` reads a constant of the process. The name ends with NUL, and no other
    // thread changes the environment: there is none yet.
    let is_all = unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        libc::getauxval(libc::AT_SECURE) == 0 && !value.is_null() && CStr::from_ptr(value) == c"all"
    };
    ALL.store(is_all, Ordering::Relaxed);
}

/// What the event of a release stores of its caller: the address alone, unless stacks of all events
/// are wanted.
#[inline(always)]
#[must_use]
pub fn of_release(caller: Caller) -> GivenPlace {
    match ALL.load(Ordering::Relaxed) {
        true => GivenPlace::Caller(caller),
        false => GivenPlace::Address(caller.ip),
    }
}
