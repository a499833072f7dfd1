//! The event path above the writer: chooses the slots of an event, and handles refusals of the
//! writer. Async-signal-safe.

use std::sync::atomic::{AtomicU16, Ordering, fence};

use usertrace_sys::limits::SLOTS;

use super::condition::{QuickAnswer, TriggerList};
use super::with_contexts::{self, Tried};
use super::{condition, current};
use crate::event::{
    ATTACH, Buffer, CONDITIONAL, COUNTED, Callsite, CountTarget, FirstWords, FlaggedWord, Outcome,
    PROBED, Scratch, TRIGGERING, WANTS_IP, ip_of,
};
use crate::writer::{self, Channel, Counted, Cursor, Dropped, Payload, Refusal, Rseq};
use crate::{control, probe};

/// The bits of masks that are not those of slots.
const FLAGGED: u32 = ATTACH | PROBED | WANTS_IP | CONDITIONAL | TRIGGERING | COUNTED;

/// Writes an event whose payload has a constant length.
///
/// The fast path: one slot wants the event, and the writer can take it at once. Other cases go to
/// functions that take the payload from memory, so that it stays in registers here.
#[doc(hidden)]
#[inline(always)]
pub fn record<const WORDS: usize>(callsite: &Callsite, payload: [u64; WORDS]) -> Outcome {
    if WORDS > 4 {
        return record_words(callsite, &payload);
    }
    let route = callsite.route();
    let Some(channel) = route.channel() else {
        return record_slow(callsite, payload);
    };
    // Pairs with the store of the route: the runtime's state and the channel were stored before.
    fence(Ordering::Acquire);
    // SAFETY: the call site has a route. The runtime opens channels under the contract of
    // `Channel::open`, and gives a call site an id only for the payload that its description
    // describes.
    let done = unsafe { writer::try_write(current::rseq(), channel, route, &payload) };
    if done {
        Outcome::Recorded
    } else {
        record_slow(callsite, payload)
    }
}

/// Writes an event of at most four words by the slow path. Passes them in registers, so that the
/// fast path needs no stack memory for them.
#[inline(always)]
fn record_slow<const WORDS: usize>(callsite: &Callsite, payload: [u64; WORDS]) -> Outcome {
    let word = |at: usize| payload.get(at).copied().unwrap_or_default();
    record_four(word(0), word(1), word(2), word(3), callsite, WORDS)
}

/// Writes an event whose payload is the first `words` of four. Not cold: all events to shared rings
/// take this path.
///
/// The functions that it leads to have the same arguments, so that they are reached by jumps. The
/// payload comes first, as in the function of an event, whose fast path need not move it then.
#[inline(never)]
fn record_four(a: u64, b: u64, c: u64, d: u64, callsite: &Callsite, words: usize) -> Outcome {
    let mask = callsite.mask();
    match callsite.flagged_route().word() {
        None if mask & FLAGGED != 0 => record_stored(a, b, c, d, callsite, words),
        None if is_several(mask) => record_several(a, b, c, d, callsite, words),
        None => record_few(a, b, c, d, callsite, words),
        Some(word) if word.is_test() => test_four(a, b, c, d, callsite, words),
        Some(_) => count_four(a, b, c, d, callsite, words),
    }
}

/// Likewise, for an event that one trace counts.
#[inline(never)]
fn count_four(a: u64, b: u64, c: u64, d: u64, callsite: &Callsite, words: usize) -> Outcome {
    if let Some(word) = callsite.flagged_route().word()
        && !word.is_test()
        && count_by_route(callsite, word, FirstWords { a, b, c, d })
    {
        return Outcome::Recorded;
    }
    record_stored(a, b, c, d, callsite, words)
}

/// Likewise, for an event that one comparison decides about.
#[inline(never)]
fn test_four(a: u64, b: u64, c: u64, d: u64, callsite: &Callsite, words: usize) -> Outcome {
    let Some(word) = callsite
        .flagged_route()
        .word()
        .filter(|word| word.is_test())
    else {
        return record_stored(a, b, c, d, callsite, words);
    };
    match test_by_route(callsite, word, FirstWords { a, b, c, d }, None) {
        QuickAnswer::Refused => Outcome::Off,
        QuickAnswer::Accepted => {
            let words = words as u64 | u64::from(word.get()) << WORD_IN_WORDS;
            record_accepted_four(a, b, c, d, callsite, words)
        }
        QuickAnswer::Unknown => record_stored(a, b, c, d, callsite, words),
    }
}

/// Likewise, for an event without flags. Writes it to the thread's own ring, if it has one.
#[inline(never)]
fn record_few(a: u64, b: u64, c: u64, d: u64, callsite: &Callsite, words: usize) -> Outcome {
    let payload = [a, b, c, d];
    if let Some((slot, channel)) = lone_channel(callsite)
        && let id = callsite.id(slot)
        // SAFETY: as in `record_words`.
        && unsafe { writer::try_write_own(channel, id, &payload[..words.min(payload.len())]) }
    {
        return Outcome::Recorded;
    }
    record_stored(a, b, c, d, callsite, words)
}

/// Likewise, for an event of several traces.
#[inline(never)]
fn record_several(a: u64, b: u64, c: u64, d: u64, callsite: &Callsite, words: usize) -> Outcome {
    let payload = [a, b, c, d];
    record_words_slow(callsite, &payload[..words.min(payload.len())])
}

/// Likewise, for an event with flags, or one that takes the slow path.
#[inline(never)]
fn record_stored(a: u64, b: u64, c: u64, d: u64, callsite: &Callsite, words: usize) -> Outcome {
    let payload = [a, b, c, d];
    record_words_without_route(callsite, &payload[..words.min(payload.len())])
}

/// The lowest bit of the flagged route in what [`record_accepted_four`] gets, so that all of its
/// arguments are in registers.
const WORD_IN_WORDS: u32 = 32;

/// Likewise, for an event that the comparison has accepted.
#[inline(never)]
fn record_accepted_four(
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    callsite: &Callsite,
    words: u64,
) -> Outcome {
    let payload = [a, b, c, d];
    let payload = payload.get(..words as u32 as usize).unwrap_or_default();
    let word = FlaggedWord::new((words >> WORD_IN_WORDS) as u32);
    let outcome = word.and_then(|word| record_accepted(callsite, word, payload));
    outcome.unwrap_or_else(|| record_words_slow(callsite, payload))
}

/// Writes an event whose payload has a variable length of at most `bound` bytes.
///
/// `short` appends the payload. If that is too long for a buffer, `long` writes the event by
/// [`record_long`]. It should be a function that is not inlined: a closure for that one keeps the
/// fields in memory.
#[doc(hidden)]
#[inline(always)]
pub fn record_variable(
    callsite: &Callsite,
    bound: usize,
    short: impl FnOnce(&mut Buffer<'_>),
    long: impl FnOnce() -> Outcome,
) -> Outcome {
    if bound > Buffer::LEN {
        return long();
    }
    let mut scratch = Scratch::uninit();
    let mut buffer = Buffer::new(&mut scratch);
    short(&mut buffer);
    record_words(callsite, buffer.words())
}

/// Writes an event whose payload is these parts, one after the other. They must match its
/// description.
pub fn record_parts(callsite: &Callsite, parts: &[&[u8]]) -> Outcome {
    let lens = parts.iter().map(|part| part.len());
    let len = lens.fold(0, usize::saturating_add);
    record_variable(
        callsite,
        len,
        |payload| {
            parts
                .iter()
                .for_each(|part| crate::event::Payload::append(payload, part));
        },
        || {
            record_long(callsite, len, &|payload| {
                parts.iter().for_each(|part| payload.append(part));
            })
        },
    )
}

/// Writes an event whose payload is these words. They must match its description, padded with
/// zeros.
#[doc(hidden)]
#[inline(never)]
pub fn record_words(callsite: &Callsite, words: &[u64]) -> Outcome {
    let route = callsite.route();
    if let Some(channel) = route.channel() {
        // Pairs with the store of the route, as in `record`.
        fence(Ordering::Acquire);
        // SAFETY: as in `record`.
        if unsafe { writer::try_write_routed(current::rseq(), channel, route, words) } {
            return Outcome::Recorded;
        }
    }
    record_words_without_route(callsite, words)
}

/// Likewise, for an event without a route, or one that its route did not record. Writes it to a
/// ring of the shared protocol, if its only trace has those, or behind its contexts.
///
/// Where there are restartable sequences, the slow path does the former: a process without an
/// update signal follows traces there.
#[inline(never)]
fn record_words_without_route(callsite: &Callsite, words: &[u64]) -> Outcome {
    let Some((slot, channel)) = lone_channel(callsite) else {
        return record_words_slow(callsite, words);
    };
    // The answers only choose the path.
    if channel.has_contexts() {
        return match with_contexts::has_stack(slot, callsite.channel(slot)) {
            false => record_with_contexts::<false>(callsite, slot, words),
            true => record_with_contexts::<true>(callsite, slot, words),
        };
    }
    record_shared(callsite, slot, words, channel)
}

/// Likewise, for an event that one trace wants without contexts.
#[inline(never)]
fn record_shared(callsite: &Callsite, slot: usize, words: &[u64], channel: &Channel) -> Outcome {
    if current::found_rseq().is_none()
        // SAFETY: as in `record_words`.
        && unsafe { writer::try_write_shared(channel, callsite.id(slot), words) }
    {
        return Outcome::Recorded;
    }
    record_words_slow(callsite, words)
}

/// Likewise, for an event that one trace wants with contexts.
#[inline(never)]
fn record_with_contexts<const STACK: bool>(
    callsite: &Callsite,
    slot: usize,
    words: &[u64],
) -> Outcome {
    let Some(tried) = with_contexts::try_record::<STACK>(callsite, slot, words) else {
        return record_in_lone_slot(callsite, slot, words);
    };
    if tried.result.is_err() || !tried.channel.is_open() {
        follow(slot, tried);
    }
    Outcome::Off.and(tried.result)
}

/// Likewise, for an event that an update must come to first.
#[cold]
#[inline(never)]
fn record_in_lone_slot(callsite: &Callsite, slot: usize, words: &[u64]) -> Outcome {
    let payload = Payload::Words(words);
    match record_in_slot(callsite, slot, payload, Refusal::Again) {
        Some(result) => Outcome::Off.and(result),
        None => record_after_fork(callsite, payload),
    }
}

/// Likewise, for an event of several traces, one with flags, or one that is not written at once.
#[inline(never)]
fn record_words_slow(callsite: &Callsite, words: &[u64]) -> Outcome {
    let mask = callsite.mask();
    if is_several(mask) {
        return record_together(callsite, words, mask);
    }
    record_each_in_turn(callsite, words)
}

/// Whether several traces want an event without flags, by its mask.
#[inline(always)]
fn is_several(mask: u32) -> bool {
    mask & FLAGGED == 0 && mask & mask.wrapping_sub(1) != 0
}

/// The only slot whose trace wants an event without flags, and its channel there. An event may need
/// its address, which is stored already.
#[inline(always)]
fn lone_channel(callsite: &Callsite) -> Option<(usize, &'static Channel)> {
    let mask = callsite.mask() & !WANTS_IP;
    // Pairs with the store of the mask, as in `record_each`.
    fence(Ordering::Acquire);
    // A mask with a flag is larger, and so is what precedes 0.
    let below = mask.wrapping_sub(1);
    if below >= (1 << SLOTS) - 1 || mask & below != 0 {
        return None;
    }
    let slot = mask.trailing_zeros() as usize;
    // SAFETY: the slot's bit is the only one in the mask, and that of a slot.
    let channel = unsafe {
        std::hint::assert_unchecked(slot < SLOTS);
        current::channel(slot, callsite.channel(slot))
    };
    Some((slot, channel))
}

/// Writes an event to each slot that wants it, one after the other.
#[inline(never)]
fn record_each_in_turn(callsite: &Callsite, words: &[u64]) -> Outcome {
    record_each(
        callsite,
        // SAFETY: `record_each` passes an open channel, and the id that the call site has there.
        |rseq, channel, id| unsafe { writer::try_write_words(rseq, channel, id, words) },
        || Payload::Words(words),
    )
}

/// Likewise, for an event that the traces of several slots want. Its records have the same time.
#[inline(never)]
fn record_together(callsite: &Callsite, words: &[u64], mask: u32) -> Outcome {
    // Pairs with the store of the mask, as in `record_each`.
    fence(Ordering::Acquire);
    let Some(rseq) = current::found_rseq() else {
        return record_each_in_turn(callsite, words);
    };
    let channel = |slot| {
        // SAFETY: the slot is one of a mask, and the channel the call site's.
        unsafe {
            std::hint::assert_unchecked(slot < SLOTS);
            current::channel(slot, callsite.channel(slot))
        }
    };
    // SAFETY: as in `record_words`, for each slot and its channel.
    let left =
        unsafe { writer::write_together(rseq, mask, channel, |slot| callsite.id(slot), words) };
    let outcome = if left == mask {
        Outcome::Off
    } else {
        Outcome::Recorded
    };
    if left == 0 {
        return outcome;
    }
    record_left(callsite, words, (left, outcome))
}

/// Writes an event to the slots in which [`record_together`] did not.
#[cold]
#[inline(never)]
fn record_left(callsite: &Callsite, words: &[u64], (left, outcome): (u32, Outcome)) -> Outcome {
    record_slots(
        callsite,
        (left, outcome),
        // SAFETY: `record_slots` passes an open channel, and the id that the call site has there.
        |rseq, channel, id| unsafe { writer::try_write_words(rseq, channel, id, words) },
        || Payload::Words(words),
    )
}

/// Writes an event whose payload, of `len` bytes, `fill` composes in the ring.
#[doc(hidden)]
#[inline(never)]
pub fn record_long(callsite: &Callsite, len: usize, fill: &dyn Fn(&mut Cursor<'_>)) -> Outcome {
    record_each(
        callsite,
        |rseq, channel, id| {
            // SAFETY: as in `record_words`.
            let result = unsafe { writer::try_write_made(rseq, channel, id, len, fill) };
            refresh_if_closed(channel);
            result
        },
        || Payload::Made { len, fill },
    )
}

/// Writes an event to each slot that wants it: with `write`, or by the slow path if that refuses.
///
/// `payload` builds the payload only for the slow path, so that it stays in registers otherwise.
/// `write` gets what [`writer::try_write_words`] requires: the runtime opens channels under the
/// contract of `Channel::open`, and gives a call site an id only for the payload that its
/// description describes.
#[inline(always)]
fn record_each<'a>(
    callsite: &Callsite,
    write: impl Fn(Option<Rseq>, &Channel, &AtomicU16) -> Result<(), Refusal>,
    payload: impl Fn() -> Payload<'a>,
) -> Outcome {
    let mask = callsite.mask();
    // Pairs with the store of the mask: the runtime's state and the slot's were stored before.
    fence(Ordering::Acquire);
    if mask & FLAGGED != 0 {
        let payload = payload();
        if let Payload::Words(words) = payload
            && let Some(word) = callsite.flagged_route().word()
            && let Some(outcome) = record_by_flagged_route(callsite, word, words)
        {
            return outcome;
        }
        return record_flagged(callsite, mask, payload);
    }
    record_slots(callsite, (mask, Outcome::Off), write, payload)
}

/// Likewise, for the slots of a mask that the caller has loaded. `outcome`: that in other slots.
#[inline(always)]
fn record_slots<'a>(
    callsite: &Callsite,
    (mut mask, mut outcome): (u32, Outcome),
    write: impl Fn(Option<Rseq>, &Channel, &AtomicU16) -> Result<(), Refusal>,
    payload: impl Fn() -> Payload<'a>,
) -> Outcome {
    while mask != 0 {
        let slot = mask.trailing_zeros() as usize;
        // SAFETY: the slot's bit was in the mask, whose remaining bits are all those of slots.
        let (rseq, channel) = unsafe {
            std::hint::assert_unchecked(slot < SLOTS);
            current::place(slot, callsite.channel(slot))
        };
        match write(rseq, channel, callsite.id(slot)) {
            Ok(()) => outcome = outcome.and(Ok(())),
            Err(refusal) => match record_in_slot(callsite, slot, payload(), refusal) {
                Some(result) => outcome = outcome.and(result),
                None => return record_after_fork(callsite, payload()),
            },
        }
        mask &= mask - 1;
    }
    outcome
}

/// Writes an event to a slot by the slow path. None if this process has no buffers of its own yet.
#[cold]
#[inline(never)]
fn record_in_slot(
    callsite: &Callsite,
    slot: usize,
    payload: Payload<'_>,
    refusal: Refusal,
) -> Option<Result<(), Dropped>> {
    if !current::is_attached() {
        return None;
    }
    // Processes without an update signal follow traces here.
    current::refresh_if_stale();
    // An update may have changed the call site's channel, or removed it if the slot has another
    // trace than when the mask was read.
    let Some(index) = callsite.wanted_channel(slot) else {
        return Some(Err(Dropped::Closed));
    };
    // SAFETY: as in `record_each`: the slot is one of a mask, and the channel the call site's.
    let (rseq, channel) = unsafe { current::place(slot, index) };
    let id = callsite.id(slot);
    if channel.counts() {
        return Some(count(callsite, (slot, index), (rseq, channel), payload));
    }
    let result = match channel.in_contexts() {
        Some(inside) => with_contexts::record(callsite, (slot, index), &inside, payload)?,
        // SAFETY: as in `record_words`.
        None => unsafe { writer::write_slowly(rseq, channel, id, payload, refusal) },
    };
    let tried = Tried {
        result,
        index,
        channel,
    };
    follow(slot, tried);
    Some(result)
}

/// Does what the result of an event, or a channel that was closed meanwhile, asks for.
#[cold]
#[inline(never)]
fn follow(slot: usize, tried: Tried) {
    refresh_if_closed(tried.channel);
    if tried.result == Err(Dropped::Lost) {
        control::report_full(slot, tried.index, tried.channel);
    }
}

/// Counts an event in a slot's channel that counts.
fn count(
    callsite: &Callsite,
    (slot, index): (usize, usize),
    (rseq, channel): (Option<Rseq>, &Channel),
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    let counted = match callsite.decision(slot) {
        0 => Some(Counted::PLAIN),
        _ => current::conditions()
            .zip(current::context_sources(ip_of(callsite)))
            .and_then(|(conditions, sources)| {
                condition::counted(conditions, callsite, (slot, index), payload, &sources)
            }),
    };
    match counted {
        Some(counted) => writer::count(rseq, channel, callsite.id(slot), &counted),
        None => Err(writer::lose_count(rseq, channel)),
    }
}

/// Runs an update if the channel was closed during a long record: this writer may have been the
/// last one that kept the slot from becoming quiescent.
fn refresh_if_closed(channel: &Channel) {
    if !channel.is_open() {
        current::refresh();
    }
}

/// The answer of the comparison that decides about an event. `first` are the first words of the
/// payload, which has no others if `all` is none.
#[inline(always)]
fn test_by_route(
    callsite: &Callsite,
    word: FlaggedWord,
    first: FirstWords,
    all: Option<&[u64]>,
) -> QuickAnswer {
    let Some(conditions) = current::conditions() else {
        return QuickAnswer::Unknown;
    };
    let is_current = || callsite.flagged_route().is_still(word);
    condition::test_quickly(conditions, word.decision(), (first, all), is_current)
}

/// Counts an event in its cell, if it has one, and reports whether it did.
#[inline(always)]
fn count_by_route(callsite: &Callsite, word: FlaggedWord, first: FirstWords) -> bool {
    let slot = word.slot();
    // SAFETY: the slot was in a mask, and the channel one of the call site. The route leads to a
    // channel that counts, whose tables have such cells: an update clears it before it opens the
    // channel again. There are no such routes without restartable sequences.
    unsafe {
        writer::count_directly(
            current::rseq(),
            current::channel(slot, word.channel()),
            (callsite.flagged_route().atomic(), word.get()),
            callsite.id(slot),
            word.is_plain(),
            || word.value().get(first),
            || word.key().get(first).map(|(bits, _)| bits),
        )
    }
}

/// Writes an event with a payload in memory by its flagged route. None: the event takes the slow
/// path.
#[inline(never)]
fn record_by_flagged_route(
    callsite: &Callsite,
    word: FlaggedWord,
    words: &[u64],
) -> Option<Outcome> {
    let first = FirstWords::of(words);
    if !word.is_test() {
        return count_by_route(callsite, word, first).then_some(Outcome::Recorded);
    }
    match test_by_route(callsite, word, first, Some(words)) {
        QuickAnswer::Refused => Some(Outcome::Off),
        QuickAnswer::Accepted => record_accepted(callsite, word, words),
        QuickAnswer::Unknown => None,
    }
}

/// Writes an event that the comparison of its flagged route has accepted. None: it takes the slow
/// path.
#[inline(always)]
fn record_accepted(callsite: &Callsite, word: FlaggedWord, words: &[u64]) -> Option<Outcome> {
    let slot = word.test_slot();
    if let Some(target) = word.test_target() {
        return count_accepted(callsite, word, target, words);
    }
    let index = callsite.wanted_channel(slot)?;
    // SAFETY: the slot was in a mask, and the channel is the call site's.
    let (rseq, channel) = unsafe { current::place(slot, index) };
    // SAFETY: as in `record_words`.
    let result = unsafe { writer::try_write_words(rseq, channel, callsite.id(slot), words) };
    result.is_ok().then_some(Outcome::Recorded)
}

/// Likewise, for an event that is counted.
#[inline(never)]
fn count_accepted(
    callsite: &Callsite,
    word: FlaggedWord,
    target: CountTarget,
    words: &[u64],
) -> Option<Outcome> {
    let (slot, channel) = (word.test_slot(), usize::from(target.channel));
    let conditions = current::conditions()?;
    let is_current = || callsite.flagged_route().is_still(word);
    let counted =
        condition::counted_quickly(conditions, word.decision(), channel, words, is_current)?;
    let key = counted.key.as_number()?;
    // SAFETY: as in `count_by_route`.
    let done = unsafe {
        writer::count_directly(
            current::rseq(),
            current::channel(slot, channel),
            (callsite.flagged_route().atomic(), word.get()),
            callsite.id(slot),
            target.is_plain,
            || counted.value.map(|value| (value.bits, value.signed)),
            || key,
        )
    };
    done.then_some(Outcome::Recorded)
}

/// Writes an event that calls probes, needs its address, has conditions or triggers, is counted, or
/// is the first one after a `fork`.
#[cold]
#[inline(never)]
fn record_flagged(callsite: &Callsite, mask: u32, payload: Payload<'_>) -> Outcome {
    if mask & PROBED != 0 {
        probe::call(callsite, payload);
    }
    const ATTACHED: u32 = CONDITIONAL | TRIGGERING | COUNTED;
    if mask & ATTACH != 0 || mask & ATTACHED != 0 && !current::is_attached() {
        return record_after_fork(callsite, payload);
    }
    record_all(callsite, mask, payload)
}

/// Writes the first event after a `fork`: gets buffers of this process's own first (A5).
#[cold]
#[inline(never)]
fn record_after_fork(callsite: &Callsite, payload: Payload<'_>) -> Outcome {
    current::refresh();
    let mask = callsite.mask();
    // Pairs with the store of the mask, as in `record`.
    fence(Ordering::Acquire);
    if mask & ATTACH != 0 || !current::is_attached() {
        // Another thread is attaching the process, or there are no buffers.
        return Outcome::Off;
    }
    record_all(callsite, mask, payload)
}

/// Writes an event by the slow path to each slot of a mask, and fires its triggers.
fn record_all(callsite: &Callsite, mask: u32, payload: Payload<'_>) -> Outcome {
    let outcome = record_in_slots(callsite, mask, payload);
    if mask & TRIGGERING != 0 {
        fire_triggers(callsite, payload);
    }
    outcome
}

/// Fires the triggers of an event that was recorded, or that no trace wants.
#[cold]
#[inline(never)]
fn fire_triggers(callsite: &Callsite, payload: Payload<'_>) {
    let sources = current::context_sources(ip_of(callsite));
    let Some((conditions, sources)) = current::conditions().zip(sources) else {
        return;
    };
    let mut fired = TriggerList::new();
    condition::find_fired(conditions, callsite, payload, &sources, &mut fired);
    // The calls may run the update signal's handler, so the triggers were copied before.
    for (slot, number) in fired.triggers() {
        current::fire(slot, number);
    }
    if !fired.is_empty() {
        // Also without a signal, the masks follow if it has stopped a trace.
        current::refresh_if_stale();
    }
}

/// Writes an event by the slow path to each slot of a mask.
fn record_in_slots(callsite: &Callsite, mask: u32, payload: Payload<'_>) -> Outcome {
    let mut slots = mask & ((1 << SLOTS) - 1);
    if mask & TRIGGERING != 0 {
        // After a trigger stopped a trace, another thread may be about to update the masks.
        slots &= current::active_slots();
    }
    if mask & CONDITIONAL != 0 {
        slots &= slots_that_conditions_let(callsite, slots, payload);
        if slots == 0 {
            // Processes without an update signal follow traces here, too.
            current::refresh_if_stale();
        }
    }
    let mut outcome = Outcome::Off;
    while slots != 0 {
        let slot = slots.trailing_zeros() as usize;
        slots &= slots - 1;
        let counted = match mask & COUNTED {
            0 => None,
            _ => count_quickly(callsite, slot, payload),
        };
        let result = counted.or_else(|| match write_quickly(callsite, mask, slot, payload) {
            Ok(()) => Some(Ok(())),
            Err(refusal) => record_in_slot(callsite, slot, payload, refusal),
        });
        if let Some(result) = result {
            outcome = outcome.and(result);
        }
    }
    outcome
}

/// Writes an event to a slot as the event path does. That needs words, and a process that is
/// attached, as only events with conditions certainly have one here.
#[inline]
fn write_quickly(
    callsite: &Callsite,
    mask: u32,
    slot: usize,
    payload: Payload<'_>,
) -> Result<(), Refusal> {
    match (payload, callsite.wanted_channel(slot)) {
        (Payload::Words(words), Some(index)) if mask & CONDITIONAL != 0 => {
            // SAFETY: the slot was in a mask, and the channel is the call site's.
            let (rseq, channel) = unsafe { current::place(slot, index) };
            // SAFETY: as in `record_words`.
            unsafe { writer::try_write_words(rseq, channel, callsite.id(slot), words) }
        }
        _ => Err(Refusal::Again),
    }
}

/// Counts an event in a slot's channel, if that counts, and needs nothing else than integers at
/// constant offsets. None: [`record_in_slot`] counts or records it.
#[inline]
fn count_quickly(
    callsite: &Callsite,
    slot: usize,
    payload: Payload<'_>,
) -> Option<Result<(), Dropped>> {
    let Payload::Words(words) = payload else {
        return None;
    };
    if !current::is_attached() {
        return None;
    }
    // Processes without an update signal follow traces here.
    current::refresh_if_stale();
    let index = callsite.wanted_channel(slot)?;
    // SAFETY: as in `record_in_slot`.
    let (rseq, channel) = unsafe { current::place(slot, index) };
    if !channel.counts() {
        return None;
    }
    let conditions = current::conditions()?;
    let decision = callsite.decision(slot);
    let is_current = || callsite.decision(slot) == decision;
    let counted = condition::counted_quickly(conditions, decision, index, words, is_current)?;
    Some(writer::count(rseq, channel, callsite.id(slot), &counted))
}

/// The slots of a mask whose conditions let an event through.
fn slots_that_conditions_let(callsite: &Callsite, mask: u32, payload: Payload<'_>) -> u32 {
    let Some(conditions) = current::conditions() else {
        return mask;
    };
    let (mut rest, mut slots) = (mask, mask);
    if let Payload::Words(words) = payload {
        let first = FirstWords::of(words);
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            let decision = callsite.decision(slot);
            let is_current = || callsite.decision(slot) == decision;
            let answer =
                condition::test_quickly(conditions, decision, (first, Some(words)), is_current);
            if answer == QuickAnswer::Refused {
                slots &= !(1 << slot);
            }
            rest &= rest - 1;
        }
    }
    match slots {
        0 => 0,
        slots => slots_of_evaluation(callsite, slots, payload),
    }
}

/// The slots of a mask for which an evaluation of the conditions lets an event through.
#[inline(never)]
fn slots_of_evaluation(callsite: &Callsite, mask: u32, payload: Payload<'_>) -> u32 {
    let Some((conditions, sources)) =
        current::conditions().zip(current::context_sources(ip_of(callsite)))
    else {
        return mask;
    };
    let (mut rest, mut slots) = (mask, 0);
    while rest != 0 {
        let slot = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        if condition::lets(conditions, callsite, slot, payload, &sources) {
            slots |= 1 << slot;
        }
    }
    slots
}
