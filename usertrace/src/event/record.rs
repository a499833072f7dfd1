//! The event path, above the writer: which slots, and what to do where the writer refuses.

use std::sync::atomic::{Ordering, fence};

use usertrace_sys::uapi::LTT_MAX_TRACES;

use super::callsite::{ATTACH, Callsite};
use super::field::Long;
use crate::runtime;
use crate::writer::{self, Dropped, Refusal};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No trace wants it.
    Off,
    /// Each trace that wants it has it.
    Recorded,
    /// At least one trace that wants it has no room for it, and counted that.
    Lost,
}

impl Outcome {
    /// Of the event in one more slot.
    fn and(self, result: Result<(), Dropped>) -> Self {
        match (self, result) {
            (_, Err(Dropped::Lost)) | (Self::Lost, _) => Self::Lost,
            (_, Ok(())) => Self::Recorded,
            (so_far, Err(Dropped::Closed)) => so_far,
        }
    }
}

/// Writes an event whose payload's length is a constant.
#[doc(hidden)]
#[inline(always)]
pub fn record<const WORDS: usize>(callsite: &Callsite, payload: &[u64; WORDS]) -> Outcome {
    let mut mask = callsite.mask();
    // Pairs with the store of the mask: the runtime's state, and the slot's, were there before.
    fence(Ordering::Acquire);
    if mask & ATTACH != 0 {
        return record_anew(callsite, payload);
    }
    let mut outcome = Outcome::Off;
    while mask != 0 {
        let slot = mask.trailing_zeros() as usize;
        // SAFETY: the slot's bit was in the mask. The runtime opens channels only as `Channel::open` asks for, and
        // gives a callsite an id for the payload that its description describes.
        let result = unsafe {
            let (rseq, channel) = runtime::place(slot);
            writer::try_write(rseq, channel, callsite.id(slot), payload)
        };
        match result {
            Ok(()) => outcome = outcome.and(Ok(())),
            Err(refusal) => match record_slowly(callsite, slot, payload, refusal) {
                Some(result) => outcome = outcome.and(result),
                None => return record_anew(callsite, payload),
            },
        }
        mask &= mask - 1;
    }
    outcome
}

/// Writes an event with a text in it.
#[doc(hidden)]
pub fn record_long(callsite: &Callsite, payload: &mut Long) -> Outcome {
    let mask = callsite.mask();
    // Pairs with the store of the mask, as in `record`.
    fence(Ordering::Acquire);
    let payload = payload.words();
    if mask & ATTACH != 0 {
        runtime::refresh();
    } else {
        match record_words(callsite, mask, payload) {
            Some(outcome) => return outcome,
            None => runtime::refresh(),
        }
    }
    record_after_refresh(callsite, payload)
}

/// Writes an event into the slots of a mask; nothing comes back if they are of a process that this one was forked
/// from. No payload is one that is too long.
fn record_words(callsite: &Callsite, mask: u32, payload: Option<&[u64]>) -> Option<Outcome> {
    let mut outcome = Outcome::Off;
    for slot in slots(mask) {
        // SAFETY: as in `record`.
        let result = unsafe {
            let (rseq, channel) = runtime::place(slot);
            match payload {
                Some(payload) => writer::try_write_words(rseq, channel, callsite.id(slot), payload),
                None => {
                    outcome = outcome.and(writer::lose(rseq, channel));
                    continue;
                }
            }
        };
        let result = match result {
            Ok(()) => Ok(()),
            Err(refusal) => record_slowly(callsite, slot, payload.unwrap_or_default(), refusal)?,
        };
        outcome = outcome.and(result);
    }
    Some(outcome)
}

fn slots(mask: u32) -> impl Iterator<Item = usize> {
    (0..LTT_MAX_TRACES).filter(move |slot| mask & (1 << slot) != 0)
}

/// Does what the event path could not do. Nothing comes back if this process has no buffers of its own yet.
#[cold]
#[inline(never)]
fn record_slowly(
    callsite: &Callsite,
    slot: usize,
    payload: &[u64],
    refusal: Refusal,
) -> Option<Result<(), Dropped>> {
    if !runtime::is_attached() {
        return None;
    }
    // Updates come by signal, but not to everybody: this is where the others learn of them.
    runtime::refresh_if_stale();
    // SAFETY: as in `record`.
    Some(unsafe {
        let (rseq, channel) = runtime::place(slot);
        writer::write_slowly(rseq, channel, callsite.id(slot), payload, refusal)
    })
}

/// The first event after a `fork`: gets buffers of this process's own, and writes it there (A5).
#[cold]
#[inline(never)]
fn record_anew(callsite: &Callsite, payload: &[u64]) -> Outcome {
    runtime::refresh();
    record_after_refresh(callsite, Some(payload))
}

fn record_after_refresh(callsite: &Callsite, payload: Option<&[u64]>) -> Outcome {
    let mask = callsite.mask();
    // Pairs with the store of the mask, as in `record`.
    fence(Ordering::Acquire);
    if mask & ATTACH != 0 || !runtime::is_attached() {
        // Another thread is at it, or there are no buffers to be had.
        return Outcome::Off;
    }
    record_words(callsite, mask, payload).unwrap_or(Outcome::Off)
}
