//! How a writer waits for a reader to make room (D7).
//!
//! Whoever waits holds nothing that anybody else waits for: no lock, no place in a ring, no visit
//! to a channel. So updates go on meanwhile, in this thread too, and a slot whose writers wait can
//! be given away. What cannot be known is whether this is a signal handler; but one that came in
//! the middle of a long record of the same thread does not wait, as the reader might wait for that
//! very record. (One that came while this waits may wait, too: for the same reader.)
//!
//! There are two ways to wait. A reader that shares the memory rings back: a futex that processes
//! share. What is mapped of the kernel's pages has no futex, so a writer looks again and again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use usertrace_sys::Mode;

use super::channel::{Channel, Control, Ring};
use super::reserve_commit::Waited;
use super::wakeup::ReaderWakeup;
use super::{hooks, thread};
use crate::os::{futex, time};

/// How long a writer sleeps before it looks again whether there is a reader at all.
///
/// Who waits is woken at once, by the reader or, if that dies, by nobody.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long a writer sleeps before it looks again whether there is room, if nobody wakes it.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until the ring with this index is no longer full, as it is with this `consumed`, or for a
/// while, if writers are to wait for readers of the channel. `is_mine`: the ring is still the one
/// that the caller means to write. `told`: the kernel was told, and nothing was consumed since.
///
/// Async-signal-safe; leaves `errno` alone.
#[cold]
#[inline(never)]
pub(super) fn wait(
    channel: &Channel,
    index: u32,
    consumed: u64,
    is_mine: impl Fn() -> bool,
    told: &mut bool,
) -> Waited {
    let Some(ring) = may_wait(channel, index) else {
        return Waited::No;
    };
    if thread::with(|thread| thread.inside.load(Ordering::Relaxed) != 0) {
        return Waited::No;
    }
    if let Some(reader_wakeup) = ring.reader_wakeup {
        sleep_on(ring.control, reader_wakeup, consumed);
        return Waited::Again;
    }
    if let Some(buffer) = channel.buffer().filter(|_| !*told) {
        // Once: who has heard it comes, however long that takes.
        hooks::tell_readers(buffer);
        *told = true;
    }
    while let Some(ring) = pause(channel, index, ring.epoch) {
        // Relaxed: whoever means to store there loads it again.
        if ring.control.consumed.load(Ordering::Relaxed) != consumed {
            *told = false;
            return Waited::Again;
        }
        if ring.mode != Mode::Block || !is_mine() {
            return Waited::Again;
        }
        if may_wait(channel, index).is_none() {
            return Waited::No;
        }
    }
    Waited::Gone
}

/// Likewise, for a moment, also in the middle of a long record: what is in the reader's way may be
/// that.
#[cold]
#[inline(never)]
pub(super) fn wait_a_moment(channel: &Channel, index: u32) -> Waited {
    match may_wait(channel, index) {
        None => Waited::No,
        Some(ring) if pause(channel, index, ring.epoch).is_some() => Waited::Again,
        Some(_) => Waited::Gone,
    }
}

/// The ring, if there is anybody to wait for.
fn may_wait(channel: &Channel, index: u32) -> Option<Ring<'_>> {
    let ring = channel.ring_at(index)?;
    let there = match ring.reader_wakeup {
        Some(reader_wakeup) => reader_wakeup.can_make_room(),
        // Relaxed: the kernel keeps the number for this alone.
        None => channel.buffer().is_some() && ring.control.readers.load(Ordering::Relaxed) != 0,
    };
    (ring.mode == Mode::Block && there).then_some(ring)
}

/// Sleeps for a moment. The ring as it is then; nothing if the channel was closed.
fn pause(channel: &Channel, index: u32, epoch: u32) -> Option<Ring<'_>> {
    time::sleep(PAUSE);
    // For those who get no signal, or none at present.
    hooks::follow_traces();
    // Anew: an update may have come, or a handler that forks, whose child has nothing where it was.
    channel.ring_at(index).filter(|ring| ring.epoch == epoch)
}

/// Sleeps until a ring's `consumed` is no longer what it was, or for a while.
fn sleep_on(control: &Control, reader_wakeup: &ReaderWakeup, consumed: u64) {
    // There may be less than a whole sub-buffer left to read: that nobody told of yet.
    reader_wakeup.notify();
    // SeqCst, as is the reader's store of `consumed`, and its load of `waiters` after that: either
    // the reader sees that somebody waits, or this sees that it has read.
    control.waiters.fetch_add(1, Ordering::SeqCst);
    if control.consumed.load(Ordering::SeqCst) == consumed {
        futex::wait(control.consumed_low(), consumed as u32, Some(PATIENCE));
    }
    control.waiters.fetch_sub(1, Ordering::Relaxed);
}
