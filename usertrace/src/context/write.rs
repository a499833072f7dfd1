//! Writes events with contexts: prepends the contexts to the payload. Async-signal-safe.

use std::sync::atomic::AtomicU16;

use usertrace_sys::uapi::LTT_MAX_CONTEXTS;

use super::values::Values;
use super::{Apps, List};
use crate::event::{Buffer, Payload as _, Scratch};
use crate::writer::{self, Cursor, Dropped, GuardedChannel, Payload, Remembered, Rseq};

/// Writes an event to a channel that has contexts, by any path.
///
/// # Safety
/// As for [`writer::write_in_contexts`]. `list` must be the one that the channel was described by.
#[inline(never)]
pub(crate) unsafe fn write(
    inside: &GuardedChannel<'_>,
    list: &List,
    apps: &Apps,
    (rseq, stamp, ip): (Option<Rseq>, u64, usize),
    id: &AtomicU16,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    // Any list of contexts fits.
    const { assert!(LTT_MAX_CONTEXTS * Remembered::NAME_LEN <= Buffer::LEN) };
    let asked;
    let thread = match inside.remembered() {
        Some(thread) => thread,
        // This thread has no cache: it queries the values each time.
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
    let mut scratch = Scratch::uninit();
    let mut all = Buffer::new(&mut scratch);
    list.each(|kind| values.append(kind, |bytes| all.append(bytes)));
    all.pad();
    // SAFETY: the contract of this function: the list is the channel's, and the id is that of such
    // a payload.
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
