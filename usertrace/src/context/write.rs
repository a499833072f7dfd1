//! Puts contexts in front of a payload.

use std::sync::atomic::AtomicU16;

use usertrace_sys::uapi::LTT_MAX_CONTEXTS;

use super::values::{NAME_LEN, Values};
use super::{Apps, List};
use crate::writer::{self, Cursor, Dropped, InContexts, Payload, Rseq};

/// Words of the longest contexts.
const CONTEXT_WORDS: usize = LTT_MAX_CONTEXTS * NAME_LEN / 8;

/// Words of a payload that is copied behind its contexts. A longer one is put together where it stays.
const SHORT: usize = 32;

/// What is put together on the stack.
struct Words {
    words: [u64; CONTEXT_WORDS + SHORT],
    /// Bytes that are there.
    len: usize,
}

impl Words {
    fn append(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(word) = self.words.get_mut(self.len / 8) {
                *word |= u64::from(*byte) << (self.len % 8 * 8);
                self.len += 1;
            }
        }
    }
}

/// Writes an event into a channel that has contexts, whatever it takes.
///
/// # Safety
/// As [`writer::write_in_contexts`]'s, but for the contexts: `list` is the channel's, by which it was described.
#[inline(never)]
pub(crate) unsafe fn write(
    inside: &InContexts<'_>,
    list: &List,
    apps: &Apps,
    (rseq, stamp, ip): (Option<Rseq>, u64, usize),
    id: &AtomicU16,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    const { assert!(cfg!(target_endian = "little")) };
    let values = Values {
        apps,
        rseq,
        stamp,
        ip,
    };
    let mut all = Words {
        words: [0; CONTEXT_WORDS + SHORT],
        len: 0,
    };
    list.each(|kind| values.append(kind, |bytes| all.append(bytes)));
    let contexts = all.len.div_ceil(8);
    // SAFETY: the caller's promise, for all.
    unsafe {
        match payload {
            Payload::Words(words) if words.len() <= SHORT => {
                let whole = contexts + words.len();
                all.words[contexts..whole].copy_from_slice(words);
                let payload = Payload::Words(&all.words[..whole]);
                writer::write_in_contexts(rseq, inside, id, payload)
            }
            Payload::Words(words) => {
                let fill = |cursor: &mut Cursor<'_>| {
                    append_words(cursor, &all.words[..contexts]);
                    append_words(cursor, words);
                };
                let len = 8 * (contexts + words.len());
                let payload = Payload::Made { len, fill: &fill };
                writer::write_in_contexts(rseq, inside, id, payload)
            }
            Payload::Made { len, fill } => {
                let with_contexts = |cursor: &mut Cursor<'_>| {
                    append_words(cursor, &all.words[..contexts]);
                    fill(cursor);
                };
                let payload = Payload::Made {
                    len: 8 * contexts + len,
                    fill: &with_contexts,
                };
                writer::write_in_contexts(rseq, inside, id, payload)
            }
        }
    }
}

fn append_words(cursor: &mut Cursor<'_>, words: &[u64]) {
    words
        .iter()
        .for_each(|word| cursor.append(&word.to_ne_bytes()));
}
