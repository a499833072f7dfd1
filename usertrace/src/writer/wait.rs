//! How a writer waits for a reader to make room (D7).
//!
//! A waiting writer holds nothing that other code waits for: no lock, no reservation in a ring, no
//! guard of a channel. So updates go on meanwhile, in this thread too, and the slot can be given to
//! another trace.
//!
//! The writer cannot know whether it runs in a signal handler. But a handler that interrupted a
//! long record of its thread does not wait, as the reader might wait for that very record. A
//! handler that interrupted this wait may wait, too: for the same reader.
//!
//! There are two ways to wait. A reader that shares memory with the writer wakes it through a
//! futex. The kernel's pages have no futex, so there a writer looks each millisecond.

use std::sync::atomic::Ordering;
use std::time::Duration;

use usertrace_sys::Mode;

use super::channel::{Channel, Control, Ring};
use super::reserve_commit::WaitOutcome;
use super::wakeup::ReaderWakeup;
use super::{hooks, thread};
use crate::os::{futex, time};

/// How long a writer sleeps before it looks again whether there is a reader at all.
///
/// The reader wakes writers at once when it makes room. If it dies, nothing wakes them.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long a writer sleeps before it looks again whether there is room, where there is no futex.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until the reader makes room in a ring, or for a while. Does not wait unless writers of the
/// channel are to wait for readers.
///
/// `consumed`: the position with which the ring was full. `is_mine`: whether the ring is still the
/// one that the caller wants to write to. `told`: whether this writer told the kernel, and nothing
/// was consumed since.
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
) -> WaitOutcome {
    let Some(ring) = may_wait(channel, index) else {
        return WaitOutcome::NotAllowed;
    };
    if thread::with(|thread| thread.inside.load(Ordering::Relaxed) != 0) {
        return WaitOutcome::NotAllowed;
    }
    if let Some(reader_wakeup) = ring.reader_wakeup {
        sleep_on(ring.control, reader_wakeup, consumed);
        return WaitOutcome::Retry;
    }
    if let Some(buffer) = channel.buffer().filter(|_| !*told) {
        // Once is enough: the kernel wakes readers, and they come, however long that takes.
        hooks::tell_readers(buffer);
        *told = true;
    }
    while let Some(ring) = pause(channel, index, ring.epoch) {
        // Relaxed: the caller loads it again before it stores anything.
        if ring.control.consumed.load(Ordering::Relaxed) != consumed {
            *told = false;
            return WaitOutcome::Retry;
        }
        if ring.mode != Mode::Block || !is_mine() {
            return WaitOutcome::Retry;
        }
        if may_wait(channel, index).is_none() {
            return WaitOutcome::NotAllowed;
        }
    }
    WaitOutcome::Gone
}

/// Waits for [`PAUSE`], also within a long record: that record may be what the reader waits for.
///
/// Async-signal-safe; leaves `errno` alone.
#[cold]
#[inline(never)]
pub(super) fn wait_a_moment(channel: &Channel, index: u32) -> WaitOutcome {
    match may_wait(channel, index) {
        None => WaitOutcome::NotAllowed,
        Some(ring) if pause(channel, index, ring.epoch).is_some() => WaitOutcome::Retry,
        Some(_) => WaitOutcome::Gone,
    }
}

/// The ring, if its mode is to wait and a reader can make room.
fn may_wait(channel: &Channel, index: u32) -> Option<Ring<'_>> {
    let ring = channel.ring_at(index)?;
    let has_reader = match ring.reader_wakeup {
        Some(reader_wakeup) => reader_wakeup.can_make_room(),
        // Relaxed: the number orders nothing else.
        None => channel.buffer().is_some() && ring.control.readers.load(Ordering::Relaxed) != 0,
    };
    (ring.mode == Mode::Block && has_reader).then_some(ring)
}

/// Sleeps for [`PAUSE`], and returns the ring as it is then; none if the channel was closed.
fn pause(channel: &Channel, index: u32, epoch: u32) -> Option<Ring<'_>> {
    time::sleep(PAUSE);
    // Some threads get no update signal, or have it blocked at present.
    hooks::follow_traces();
    // Looked up again: an update may have come, or this is the child of a handler that forked.
    channel.ring_at(index).filter(|ring| ring.epoch == epoch)
}

/// Sleeps until the reader moves a ring's `consumed`, for [`PATIENCE`] at most.
fn sleep_on(control: &Control, reader_wakeup: &ReaderWakeup, consumed: u64) {
    // The reader may not know of the last sub-buffer yet, which is not filled.
    reader_wakeup.notify();
    // SeqCst, as are the reader's store of `consumed`, and its later load of `waiters`. Either the
    // reader sees this waiter, or this sees that it has consumed.
    control.waiters.fetch_add(1, Ordering::SeqCst);
    if control.consumed.load(Ordering::SeqCst) == consumed {
        futex::wait(control.consumed_low(), consumed as u32, Some(PATIENCE));
    }
    control.waiters.fetch_sub(1, Ordering::Relaxed);
}
