//! Writes events with contexts: prepends the contexts to the payload. Async-signal-safe.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU16;

use usertrace_sys::uapi::LTT_MAX_CONTEXTS;

use super::callstack::{self, MAX_FRAMES};
use super::values::{Code, Values};
use super::{Apps, List};
use crate::event::{Buffer, Place, Scratch, SizedBuffer, words_for};
use crate::writer::{self, Cursor, Dropped, GuardedChannel, Payload, Readers, Remembered, Rseq};

/// Bytes for the contexts of a channel with a call stack, and for a short payload behind them.
const LONG: usize = 1024;
/// Bytes of a call stack of one address.
const ADDRESS: usize = size_of::<u32>() + size_of::<u64>();
/// Words of a payload that is short enough for any path.
const MAX_WORDS: usize = 4;
/// Bytes of a call stack.
const CALLSTACK: usize = size_of::<u32>() + MAX_FRAMES * size_of::<u64>();

// Any list of contexts fits: it has at most one call stack.
const _: () = {
    assert!(LTT_MAX_CONTEXTS * Remembered::NAME_LEN <= Buffer::LEN);
    assert!(CALLSTACK + (LTT_MAX_CONTEXTS - 1) * Remembered::NAME_LEN <= LONG);
};

/// Writes an event to a channel that has contexts, by any path. `STACK`: the list has a call stack,
/// which takes more memory.
///
/// # Safety
/// As for [`writer::write_in_contexts`]. `list` must be the one that the channel was described by.
#[inline(always)]
pub(crate) unsafe fn write<const STACK: bool>(
    inside: &GuardedChannel<'_>,
    (list, readers): (&List, &Readers),
    apps: fn() -> &'static Apps,
    (rseq, stamp, place, code): (Option<Rseq>, u64, Place, Code),
    id: &AtomicU16,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    if STACK
        && !place.has_frame()
        && list.is_callstack_alone()
        && let Payload::Words(words) = payload
        && words.len() <= MAX_WORDS
    {
        // SAFETY: the contract of this function.
        return unsafe { write_address(inside, (rseq, place, code), id, words) };
    }
    let asked;
    // Channels of a back end that removes no traces know no readers.
    let (thread, walks) = match inside.caches().or_else(|| readers.caches()) {
        Some((thread, walks)) => (thread, STACK.then_some(walks)),
        // There are too many threads: this one queries the values each time.
        None => {
            asked = Remembered::default();
            (&asked, None)
        }
    };
    let values = Values {
        apps,
        thread,
        walks,
        rseq,
        stamp,
        place,
        code: Some(code),
    };
    let event = (inside, list, &values, id, payload);
    if STACK {
        let mut scratch = MaybeUninit::<[u64; words_for(LONG)]>::uninit();
        // SAFETY: the contract of this function.
        unsafe { write_in(&mut scratch, event) }
    } else {
        let mut scratch = Scratch::uninit();
        // SAFETY: the contract of this function.
        unsafe { write_in(&mut scratch, event) }
    }
}

/// Writes an event of a few words to a channel with a call stack as the only context, if the event
/// has no other address than its own, such as that of `free`.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
unsafe fn write_address(
    inside: &GuardedChannel<'_>,
    (rseq, place, code): (Option<Rseq>, Place, Code),
    id: &AtomicU16,
    words: &[u64],
) -> Result<(), Dropped> {
    let mut scratch = MaybeUninit::<[u64; words_for(ADDRESS) + MAX_WORDS]>::uninit();
    let mut all = SizedBuffer::new(&mut scratch);
    callstack::append_address(place, 1, &mut all, |address| code.see(address));
    all.pad();
    let fits = all.append_words(words);
    debug_assert!(fits, "the memory has room for an address and MAX_WORDS");
    // SAFETY: the contract of this function: the list is the channel's, and the id is that of such
    // a payload.
    unsafe { writer::write_in_contexts(rseq, inside, id, Payload::Words(all.words())) }
}

type Event<'a, 'b> = (
    &'a GuardedChannel<'b>,
    &'a List,
    &'a Values<'a>,
    &'a AtomicU16,
    Payload<'a>,
);

/// # Safety
/// As for [`write`].
#[inline(always)]
unsafe fn write_in<const WORDS: usize>(
    scratch: &mut MaybeUninit<[u64; WORDS]>,
    (inside, list, values, id, payload): Event<'_, '_>,
) -> Result<(), Dropped> {
    let rseq = values.rseq;
    let mut all = SizedBuffer::new(scratch);
    for kind in list.kinds() {
        values.append(kind, &mut all);
    }
    all.pad();
    // SAFETY: the contract of this function: the list is the channel's, and the id is that of such
    // a payload.
    unsafe {
        match payload {
            Payload::Words(words) if all.append_words(words) => {
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
