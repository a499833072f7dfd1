//! Asks for the values of contexts before the first event does.

use super::kind::Kind;
use super::values::Values;
use super::{Apps, List};
use crate::event::{Frame, Place};
use crate::writer::Readers;

/// Has the calling thread cache the values of contexts that cost system calls. Later, the program
/// may forbid these: programs such as `sshd` install a filter that kills them for calls that they
/// do not know. The call for the stack is allowed by all: C libraries need it for `abort`.
pub(crate) fn ask_ahead(list: &List, readers: &Readers, apps: &Apps, stamp: u64) {
    let Some(thread) = readers.cache() else {
        return;
    };
    let values = Values {
        apps,
        thread,
        last_walk: None,
        rseq: None,
        stamp,
        place: Place::new(0, Frame::Pointer(0)),
        code: None,
    };
    list.each(|kind| {
        if matches!(
            kind,
            Kind::Vpid | Kind::Vtid | Kind::Procname | Kind::Namespace(_)
        ) {
            values.append(kind, |_| {});
        }
    });
}
