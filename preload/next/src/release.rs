//! Which stacks the events of releases have, such as those of `free` and of unlocking.
//!
//! A stack says who has something: that of the event that got it. One for the release, too, would
//! double the time and the size of a trace.

use std::sync::atomic::{AtomicBool, Ordering};

use usertrace::__private::{Caller, GivenPlace, wants_all_stacks};

/// Whether all events have whole stacks. Relaxed: nothing else depends on it.
static ALL: AtomicBool = AtomicBool::new(false);

/// Reads the environment. The program's constructors and threads come later.
pub(crate) fn start() {
    ALL.store(wants_all_stacks(), Ordering::Relaxed);
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
