//! Where the control channel of this process is.

use std::sync::atomic::Ordering;

use super::state::Control;
use crate::runtime::fork_private;
use crate::runtime::shared::{once, shared};

/// The channel's place, if there ever was one.
pub(super) fn control() -> Option<&'static Control> {
    // Acquire pairs with the store in `once`. SAFETY: what is stored there stays.
    unsafe { shared().control.load(Ordering::Acquire).as_ref() }
}

/// The channel's place.
pub(super) fn place() -> Option<&'static Control> {
    once(&shared().control, fork_private::map_kept)?;
    control()
}
