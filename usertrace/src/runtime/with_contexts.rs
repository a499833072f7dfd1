//! Writes events to channels with contexts. Async-signal-safe.
//!
//! An event that one trace wants takes a path of its own, as it is then the usual one: the slow
//! path is for those of several traces, with flags, or in a process that an update must come to.

use std::sync::atomic::{AtomicU16, Ordering};

use super::current;
use super::state::State;
use crate::context::{self, List};
use crate::event::{Callsite, place_of};
use crate::writer::{Channel, Dropped, GuardedChannel, Payload};

/// How the code at the addresses of events is described.
const CODE: context::Code = context::Code {
    changes: current::object_changes,
    notice: current::notice_address,
};

/// A channel to which an event was written, or was to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    pub(super) result: Result<(), Dropped>,
    pub(super) index: usize,
    pub(super) channel: &'static Channel,
}

/// Whether the contexts of a channel have a call stack. Only a writer inside can rely on the
/// answer.
#[inline(always)]
pub(super) fn has_stack(slot: usize, channel: usize) -> bool {
    let list = current::state().and_then(|state| list(state, slot, channel));
    list.is_some_and(|list| list.frames() > 0)
}

/// Writes an event to the channel of the only slot that wants it, if the channel has contexts, with
/// a call stack if `STACK`. None: the event takes the slow path.
#[inline(always)]
pub(super) fn try_record<const STACK: bool>(
    callsite: &Callsite,
    slot: usize,
    words: &[u64],
) -> Option<Tried> {
    let state = current::fresh_state()?;
    let index = callsite.wanted_channel(slot)?;
    let channel = state.channels.get(slot)?.get(index)?;
    if channel.counts() {
        return None;
    }
    let inside = channel.in_contexts()?;
    let list = list(state, slot, index)?;
    if (list.frames() > 0) != STACK {
        return None;
    }
    let (place, payload) = ((callsite, callsite.id(slot)), Payload::Words(words));
    let result = write::<STACK>(place, (state, list), &inside, payload);
    // What follows looks at the channel from outside.
    drop(inside);
    Some(Tried {
        result,
        index,
        channel,
    })
}

/// Writes an event to a channel with contexts by the slow path. None if there is no such channel.
pub(super) fn record(
    callsite: &Callsite,
    (slot, index): (usize, usize),
    inside: &GuardedChannel<'_>,
    payload: Payload<'_>,
) -> Option<Result<(), Dropped>> {
    let state = current::state()?;
    let list = list(state, slot, index)?;
    let place = (callsite, callsite.id(slot));
    // Two functions, because a call stack takes more stack.
    Some(match list.frames() {
        0 => write_apart::<false>(place, (state, list), inside, payload),
        _ => write_apart::<true>(place, (state, list), inside, payload),
    })
}

#[inline(never)]
fn write_apart<const STACK: bool>(
    place: (&Callsite, &AtomicU16),
    contexts: (&State, &List),
    inside: &GuardedChannel<'_>,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    write::<STACK>(place, contexts, inside, payload)
}

/// Writes an event to a channel behind its contexts, which have a call stack if `STACK`. The id and
/// the list must be those of the channel.
#[inline(always)]
fn write<const STACK: bool>(
    (callsite, id): (&Callsite, &AtomicU16),
    (state, list): (&State, &List),
    inside: &GuardedChannel<'_>,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    let stamp = state.stamp.load(Ordering::Relaxed);
    // SAFETY: the callers pass the id that the call site has in the channel, which the runtime has
    // opened, and the channel's list.
    unsafe {
        context::write::<STACK>(
            inside,
            (list, &state.readers),
            current::apps,
            (current::found_rseq(), stamp, place_of(callsite), CODE),
            id,
            payload,
        )
    }
}

/// The contexts of a channel; none if there is no such channel.
#[inline(always)]
fn list(state: &'static State, slot: usize, channel: usize) -> Option<&'static List> {
    state.contexts.get(slot)?.get(channel)
}
