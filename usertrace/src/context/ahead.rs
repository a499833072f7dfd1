//! Asks for numbers of a thread before its first event does.

use super::values::Values;
use super::{Apps, Kind, List};
use crate::event::{Frame, Place};
use crate::writer::Readers;

/// Has the calling thread cache its numbers, and where its other values are cached: later, the
/// program may install a filter that kills it for these calls. A name and namespaces may change
/// until the first event, which asks for them.
pub(crate) fn ask_ahead(list: &List, readers: &Readers, apps: fn() -> &'static Apps, stamp: u64) {
    let Some(thread) = readers.cache() else {
        return;
    };
    let values = Values {
        apps,
        thread,
        walks: None,
        rseq: None,
        stamp,
        place: Place::new(0, Frame::Pointer(0)),
        code: None,
    };
    if list.has(Kind::Vpid) || list.has(Kind::Vtid) {
        values.know_numbers();
    }
}
