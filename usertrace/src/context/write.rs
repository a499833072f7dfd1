//! Puts contexts in front of a payload.

use std::sync::atomic::AtomicU16;

use usertrace_sys::uapi::LTT_MAX_CONTEXTS;

use super::values::Values;
use super::{Apps, List};
use crate::event::{Buffer, Payload as _, Room};
use crate::writer::{self, Cursor, Dropped, InContexts, Payload, Remembered, Rseq};

/// Writes an event into a channel that has contexts, whatever it takes.
///
/// # Safety
/// As [`writer::write_in_contexts`]'s, but for the contexts: `list` is the channel's, by which it
/// was described.
#[inline(never)]
pub(crate) unsafe fn write(
    inside: &InContexts<'_>,
    list: &List,
    apps: &Apps,
    (rseq, stamp, ip): (Option<Rseq>, u64, usize),
    id: &AtomicU16,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    // The longest contexts find room.
    const { assert!(LTT_MAX_CONTEXTS * Remembered::NAME_LEN <= Buffer::LEN) };
    let asked;
    let thread = match inside.remembered() {
        Some(thread) => thread,
        // It has no place to remember: it asks each time.
        None => {
            asked = Remembered::default();
            &asked
        }
    };
    let values = Values {
        apps,
        thread,
        rseq,
        stamp,
        ip,
    };
    let mut room = Room::uninit();
    let mut all = Buffer::new(&mut room);
    list.each(|kind| values.append(kind, |bytes| all.append(bytes)));
    all.pad();
    // SAFETY: the list is the channel's, and the id is of such a payload, as this function's caller
    // promises.
    unsafe {
        match payload {
            Payload::Words(words) if all.has_room(8 * words.len()) => {
                words
                    .iter()
                    .for_each(|word| all.append(&word.to_ne_bytes()));
                writer::write_in_contexts(rseq, inside, id, Payload::Words(all.words()))
            }
            Payload::Words(words) => {
                let contexts = all.bytes();
                let fill = |cursor: &mut Cursor<'_>| {
                    cursor.append(contexts);
                    words
                        .iter()
                        .for_each(|word| cursor.append(&word.to_ne_bytes()));
                };
                let len = contexts.len() + 8 * words.len();
                let payload = Payload::Made { len, fill: &fill };
                writer::write_in_contexts(rseq, inside, id, payload)
            }
            Payload::Made { len, fill } => {
                let contexts = all.bytes();
                let with_contexts = |cursor: &mut Cursor<'_>| {
                    cursor.append(contexts);
                    fill(cursor);
                };
                let payload = Payload::Made {
                    len: contexts.len() + len,
                    fill: &with_contexts,
                };
                writer::write_in_contexts(rseq, inside, id, payload)
            }
        }
    }
}
