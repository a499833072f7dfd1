//! Writes records into the per-CPU rings of a channel.
//!
//! An event is one restartable sequence (`rseq_x86_64.rs`): no lock, no atomic instruction, no system call (A3). A
//! thread that is killed, or a kernel that panics, at any instruction leaves a ring in which everything below `head`
//! is whole (A10). What the sequence cannot do by itself, beginning a sub-buffer or storing a full time stamp, is a
//! sequence of its own that the slow path prepares.
//!
//! A `vfork` child runs on its parent's rseq area, of which the kernel does not know that it is in use: its events must
//! not come here. (They do, as yet.)
//!
//! Nothing here allocates, locks, or touches `errno` or thread-local storage other than the rseq area, so events may
//! come from signal handlers, from inside `malloc`, and from each other's middle.

mod channel;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "rseq_x86_64.rs"]
mod rseq;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("usertrace has restartable sequences for x86-64 Linux only");

use std::sync::atomic::{AtomicU16, Ordering};

use usertrace_sys::uapi::{LTT_ID_PAD, LTT_ID_TIME, LttSubbuf};

use self::channel::{LONGEST, Ring};
use self::rseq::{Advance, Step};

pub(crate) use self::rseq::Refusal;

pub use self::channel::{BadGeometry, Channel, Geometry};
pub use self::rseq::{NoRseq, Rseq};

/// Longest record of an event, with its header word.
///
/// A longer one is dropped and counted as lost, as one is for which there is no room.
pub const RECORD_MAX: usize = 2048;

/// How often the slow path looks again before it gives a record up. Each time that it must, another writer on the
/// same CPU came first.
const ROUNDS: u32 = 100;

/// Why a record was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// Counted in the ring.
    Lost,
    /// The channel is closed, or was wiped, or the event is not described in it; there is nothing to count in.
    Closed,
}

/// The event path: writes a record whose payload's length is a constant, if that takes nothing but to store it.
///
/// # Safety
/// Whoever opened `channel` kept the promise of [`Channel::open`]. `id` is 0, or the id of an event with such a
/// payload, or that of a metadata record.
#[inline(always)]
pub(crate) unsafe fn try_write<const WORDS: usize>(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64; WORDS],
) -> Result<(), Refusal> {
    const { assert!(8 + 8 * WORDS <= RECORD_MAX) };
    // SAFETY: the caller's promise.
    unsafe { rseq::record(rseq, channel, id, payload) }
}

/// The event path for any payload. One that is longer than a record may be is refused as what can never be written.
///
/// # Safety
/// As [`try_write`]'s.
pub(crate) unsafe fn try_write_words(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Refusal> {
    if 8 + 8 * payload.len() as u64 > LONGEST {
        return Err(Refusal::Aborted);
    }
    // SAFETY: the caller's promise, and the length is checked.
    unsafe { rseq::record_words(rseq, channel, id, payload) }
}

/// Writes a record, whatever it takes.
///
/// # Safety
/// As [`try_write`]'s.
pub(crate) unsafe fn write_words(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Dropped> {
    // SAFETY: the caller's promise.
    match unsafe { try_write_words(rseq, channel, id, payload) } {
        Ok(()) => Ok(()),
        // SAFETY: the caller's promise.
        Err(refusal) => unsafe { write_slowly(rseq, channel, id, payload, refusal) },
    }
}

/// Does what the event path could not do, and tries it again. `refusal` is why it could not.
///
/// # Safety
/// As [`try_write`]'s.
#[cold]
#[inline(never)]
pub(crate) unsafe fn write_slowly(
    rseq: Rseq,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
    mut refusal: Refusal,
) -> Result<(), Dropped> {
    let len = 8 + 8 * payload.len() as u64;
    if len > LONGEST {
        return lose(rseq, channel);
    }
    for _ in 0..ROUNDS {
        let step = match refusal {
            Refusal::NeedSubbuf => begin_subbuf(rseq, channel, len),
            Refusal::NeedTime => store_time(rseq, channel),
            Refusal::NoRing if channel.is_open() && id.load(Ordering::Relaxed) != 0 => {
                // Not this channel's fault: the thread has no CPU number, or one that no ring exists for.
                return lose(rseq, channel);
            }
            Refusal::NoRing => return Err(Dropped::Closed),
            Refusal::Aborted => return lose(rseq, channel),
        };
        match step {
            Ok(Step::Done | Step::Changed) => {}
            Ok(Step::Aborted) | Err(Full) => return lose(rseq, channel),
        }
        // SAFETY: the caller's promise.
        match unsafe { rseq::record_words(rseq, channel, id, payload) } {
            Ok(()) => return Ok(()),
            Err(again) => refusal = again,
        }
    }
    lose(rseq, channel)
}

/// The ring has no room for another sub-buffer.
struct Full;

/// Begins the next sub-buffer of this CPU's ring, unless the present one has room for a record of `len` bytes.
fn begin_subbuf(rseq: Rseq, channel: &Channel, len: u64) -> Result<Step, Full> {
    let cpu = rseq.cpu();
    let Some(ring) = channel.ring(cpu) else {
        return Ok(Step::Changed);
    };
    let head = ring.control.head.load(Ordering::Relaxed);
    let offset = head & (ring.subbuf_size - 1);
    if offset != 0 && offset + len <= ring.subbuf_size {
        return Ok(Step::Changed);
    }
    let position = head.next_multiple_of(ring.subbuf_size);
    // Pairs with the kernel's store after the consumer said that it has read everything below: what is stored
    // from here on comes after those reads.
    let consumed = ring.control.consumed.load(Ordering::Acquire);
    if position
        .wrapping_add(ring.subbuf_size)
        .wrapping_sub(consumed)
        > ring.ring_size
    {
        return Err(Full);
    }
    let mut unused = 0;
    let mut advance = Advance {
        epoch: ring.epoch,
        cpu,
        control: ring.control,
        head,
        word: if offset == 0 {
            &raw mut unused
        } else {
            ring.at(head)
        },
        word_id: LTT_ID_PAD.into(),
        full_time: &raw mut unused,
        subbuf: ring.at(position),
        position,
        new_head: position + size_of::<LttSubbuf>() as u64,
        time: 0,
    };
    // SAFETY: everything was made from `ring`. `head` is not below `position - subbuf_size`, and the sub-buffer at
    // `position` may be overwritten: the comparison above.
    let step = unsafe { rseq::advance(rseq, channel, &mut advance) };
    note_time(rseq, channel, &ring, step, &advance);
    Ok(step)
}

/// Stores a full time stamp in this CPU's ring.
fn store_time(rseq: Rseq, channel: &Channel) -> Result<Step, Full> {
    let cpu = rseq.cpu();
    let Some(ring) = channel.ring(cpu) else {
        return Ok(Step::Changed);
    };
    let head = ring.control.head.load(Ordering::Relaxed);
    let offset = head & (ring.subbuf_size - 1);
    if offset == 0 || offset + 16 > ring.subbuf_size {
        // Beginning a sub-buffer stores the full time, too.
        return begin_subbuf(rseq, channel, 16);
    }
    let mut unused = LttSubbuf::default();
    let mut advance = Advance {
        epoch: ring.epoch,
        cpu,
        control: ring.control,
        head,
        word: ring.at(head),
        word_id: LTT_ID_TIME.into(),
        full_time: ring.at(head + 8),
        subbuf: &raw mut unused,
        position: 0,
        new_head: head + 16,
        time: 0,
    };
    // SAFETY: everything was made from `ring`, and the 16 bytes behind `head` lie in a sub-buffer that was begun.
    let step = unsafe { rseq::advance(rseq, channel, &mut advance) };
    note_time(rseq, channel, &ring, step, &advance);
    Ok(step)
}

/// Notes the full time that was stored in the ring, for the event path to compare with.
///
/// After the commit, not before: `time` may be older than what the ring has (then one time stamp too many is stored),
/// but must not be newer (one would be missing). So it does no harm either if others commit between the two, or if it
/// is not done.
fn note_time(rseq: Rseq, channel: &Channel, ring: &Ring<'_>, step: Step, advance: &Advance) {
    if step == Step::Done {
        // SAFETY: all is of `ring`.
        let _ = unsafe { rseq::note_time(rseq, channel, ring.epoch, ring.control, advance.time) };
    }
}

/// Counts a lost record in this CPU's ring; a thread that has none counts in ring 0.
pub(crate) fn lose(rseq: Rseq, channel: &Channel) -> Result<(), Dropped> {
    for _ in 0..ROUNDS {
        let (ring, own) = match channel.ring(rseq.cpu()) {
            Some(ring) => (ring, true),
            None => (channel.ring(0).ok_or(Dropped::Closed)?, false),
        };
        let step = if own {
            // SAFETY: all is of `ring`.
            unsafe { rseq::lose(rseq, channel, ring.epoch, ring.control) }
        } else {
            Step::Aborted
        };
        match step {
            Step::Done => return Err(Dropped::Lost),
            Step::Changed => {}
            Step::Aborted => {
                // Without a sequence nothing compares the epoch: if the slot gets another trace just now, that one
                // has the loss.
                ring.control.lost.fetch_add(1, Ordering::Relaxed);
                return Err(Dropped::Lost);
            }
        }
    }
    Err(Dropped::Closed)
}

#[cfg(test)]
mod tests;
