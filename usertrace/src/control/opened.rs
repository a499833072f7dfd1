//! Finds the control channel of this process.

use std::sync::atomic::Ordering;

use super::state::Control;
use crate::os::fork_private;
use crate::runtime::shared::{once, shared};

/// The channel's state; none before the first opening.
pub(super) fn control() -> Option<&'static Control> {
    // Acquire pairs with the store in `once`. SAFETY: a state that `once` stored is never unmapped.
    unsafe { shared().control.load(Ordering::Acquire).as_ref() }
}

/// The channel's state, which is created if there is none.
pub(super) fn open() -> Option<&'static Control> {
    once(&shared().control, fork_private::map_kept)?;
    control()
}
