//! The objects that this process has loaded: its program and libraries, for readers that look up
//! addresses.
//!
//! Updates describe them in each trace. Updates run wherever events come from, and must not wait
//! for the dynamic linker's lock. So [`notice`], which does, only runs at safe points: when tracing
//! is initialised, and when a library that has events or the preload library `dl` sees a change.
//! The address of an event may lead to further objects ([`notice_address`]).

use std::sync::atomic::Ordering;

use super::object_log::ObjectLog;
use super::shared::{once, shared};
use crate::os::{fork_private, linker};
use crate::writer;

/// The log, if there is one.
#[inline]
fn log() -> Option<&'static ObjectLog> {
    // Acquire pairs with the store in `once`. SAFETY: what `once` stored is never unmapped.
    unsafe { shared().objects.load(Ordering::Acquire).as_ref() }
}

/// Number of changes so far.
#[inline]
pub(super) fn count() -> u32 {
    log().map_or(0, ObjectLog::count)
}

/// Number of changes that are not described, for lack of room.
pub(super) fn lost() -> u32 {
    log().map_or(0, ObjectLog::lost)
}

/// The line of a change, see [`ObjectLog::line`].
pub(super) fn line(number: u32, is_first: bool) -> Option<&'static [u8]> {
    log()?.line(number, is_first)
}

/// Looks for the object that contains an address, if the log has none there. Returns whether there
/// is a new one. The next update describes it.
///
/// Async-signal-safe: it waits for nobody. The code at the address must have called the caller.
pub(super) fn notice_address(address: usize) -> bool {
    let Some(log) = log().filter(|log| !log.has(address)) else {
        return false;
    };
    // A `vfork` child has another process id, and would take the lock that its parent holds.
    if writer::is_lent() {
        return false;
    }
    let mut is_new = false;
    linker::find_object(address, |object| {
        if let Some(writer) = log.try_lock() {
            is_new = writer.add_by_address(object);
        }
    });
    is_new
}

/// Looks for objects that were loaded or unloaded. Returns whether there are any. The next update
/// describes them.
///
/// It waits for the dynamic linker's lock, so code that events may come from must not call this.
/// Allocates nothing; preserves `errno`.
pub(crate) fn notice() -> bool {
    if once(&shared().objects, fork_private::map_kept).is_none() {
        return false;
    }
    let writer = log().and_then(ObjectLog::lock);
    writer.is_some_and(|writer| writer.walk())
}
