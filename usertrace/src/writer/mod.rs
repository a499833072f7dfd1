//! Writes records into the rings of a channel.
//!
//! There are two protocols. Rings of a CPU are written by restartable sequences (`rseq/`): an event
//! is one sequence, with no lock, no atomic instruction, no system call (A3). So are rings of a
//! concurrency id, but out of line. What a sequence cannot do by itself, beginning a sub-buffer or
//! storing a full time stamp, is a sequence of its own that the slow path (`percpu.rs`) prepares.
//! Where there is no rseq, or a ring is not one of a CPU, records are reserved and committed by
//! atomic instructions (`shared/`).
//!
//! A thread that is killed, or a kernel that panics, at any instruction leaves a ring in which
//! everything that was committed can be told from what was not (A10).
//!
//! A `vfork` child runs on its parent's thread block and rseq area, of which the kernel does not
//! know that it is in use. A wrapper of `vfork` says so, and rings of a CPU then take nothing: its
//! events are counted as lost. What calls `clone` with `CLONE_VM` by itself is not noticed.
//!
//! Nothing here allocates, locks, or touches `errno` or lazily allocated thread-local storage, so
//! events may come from signal handlers, from inside `malloc`, and from each other's middle.

mod channel;
mod hooks;
mod payload;
mod percpu;
mod prefault;
mod quiescence;
mod refusal;
mod remembered;
mod reserve_commit;
mod ring_index;
mod route;
mod rseq;
mod thread;
mod wait;
mod wakeup;

use std::sync::atomic::AtomicU16;

use self::ring_index::{CPU_ID, CPU_ID_WITH_CONTEXT, MAX_RINGS, MM_CID, MM_CID_WITH_CONTEXT};

use crate::os;

pub(crate) use self::channel::GuardedChannel;
pub(crate) use self::hooks::{Hooks, set as set_hooks};
pub(crate) use self::payload::Payload;
pub(crate) use self::refusal::{Dropped, Refusal};
pub(crate) use self::remembered::Remembered;
pub(crate) use self::route::Route;
pub(crate) use self::rseq::has_mm_cid;
pub(crate) use self::thread::{get_here, set_here};

pub use self::channel::{Channel, Geometry, GeometryError, QuiescenceSlot};
pub use self::payload::Cursor;
pub use self::prefault::Prefault;
pub use self::quiescence::Readers;
pub use self::rseq::{Rseq, RseqError};
pub use self::wakeup::{ReaderWakeup, WakeupMethod};

/// The CPU that the calling thread ran on a moment ago. Leaves `errno` alone.
pub(crate) fn cpu(rseq: Option<Rseq>) -> u32 {
    let known = rseq.map(Rseq::index::<CPU_ID>);
    if let Some(cpu) = known.filter(|cpu| *cpu < MAX_RINGS) {
        return cpu;
    }
    os::thread::cpu()
}

/// The event path: writes a record whose payload's length is a constant, if that takes nothing but
/// to store it, and says whether it did. Why it did not, the next try will tell.
///
/// # Safety
/// `channel` is one that `route` led to, and whoever opened it kept the promise of
/// [`Channel::open`]. The ids that `route` has are of an event with such a payload.
#[inline(always)]
pub(crate) unsafe fn try_write<const WORDS: usize>(
    rseq: Rseq,
    channel: &Channel,
    route: &Route,
    payload: &[u64; WORDS],
) -> bool {
    // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a payload,
    // as this function's caller promises.
    unsafe { rseq::record(rseq, channel, route, payload) }
}

/// The event path for any payload that is at hand.
///
/// # Safety
/// Whoever opened `channel` kept the promise of [`Channel::open`]. `id` is 0, or the id of an event
/// with such a payload, or that of a metadata record.
#[inline(always)]
pub(crate) unsafe fn try_write_words(
    rseq: Option<Rseq>,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Refusal> {
    match rseq {
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        Some(rseq) => unsafe { percpu::record_words::<CPU_ID>(rseq, channel, id, payload) },
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        None => Ok(unsafe { reserve_commit::write(channel, id, payload) }?),
    }
}

/// The event path for any payload that is to be made: `len` bytes, by `fill`.
///
/// # Safety
/// As [`try_write_words`]'s.
pub(crate) unsafe fn try_write_made(
    rseq: Option<Rseq>,
    channel: &Channel,
    id: &AtomicU16,
    len: usize,
    fill: &dyn Fn(&mut Cursor<'_>),
) -> Result<(), Refusal> {
    match rseq {
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        Some(rseq) => unsafe { percpu::record_made::<CPU_ID>(rseq, channel, id, len, fill) },
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        None => Ok(unsafe { reserve_commit::write_made(channel, id, len, fill) }?),
    }
}

/// Writes a record, whatever it takes.
///
/// # Safety
/// As [`try_write_words`]'s.
pub(crate) unsafe fn write_words(
    rseq: Option<Rseq>,
    channel: &Channel,
    id: &AtomicU16,
    payload: &[u64],
) -> Result<(), Dropped> {
    // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a payload,
    // as this function's caller promises.
    unsafe { write_slowly(rseq, channel, id, Payload::Words(payload), Refusal::Again) }
}

/// Does what the event path could not do, and tries it again. `refusal` is why it could not;
/// `Again`: it did not try.
///
/// # Safety
/// As [`try_write_words`]'s.
#[cold]
#[inline(never)]
pub(crate) unsafe fn write_slowly(
    rseq: Option<Rseq>,
    channel: &Channel,
    id: &AtomicU16,
    payload: Payload<'_>,
    refusal: Refusal,
) -> Result<(), Dropped> {
    let written = match rseq {
        _ if refusal == Refusal::Lost => Err(Dropped::Lost),
        // The event path does not know of these rings. SAFETY: the channel was opened as
        // `Channel::open` asks for, and the id is of such a payload, as this function's caller
        // promises.
        Some(rseq) if channel.is_by::<MM_CID>() => unsafe {
            percpu::write::<MM_CID>(rseq, channel, id, payload, Refusal::Again)
        },
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        Some(rseq) if !channel.is_shared() => unsafe {
            percpu::write::<CPU_ID>(rseq, channel, id, payload, refusal)
        },
        _ => match payload {
            // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
            // payload, as this function's caller promises.
            Payload::Words(words) => unsafe { reserve_commit::write(channel, id, words) },
            // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
            // payload, as this function's caller promises.
            Payload::Made { len, fill } => unsafe {
                reserve_commit::write_made(channel, id, len, fill)
            },
        },
    };
    if written == Err(Dropped::Closed) && channel.is_flagged() {
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        return unsafe { write_flagged(rseq, channel, id, payload) };
    }
    written
}

/// Writes a record into a channel that the event path does not know of, and whose records have no
/// contexts: one whose times are those of another clock.
///
/// # Safety
/// As [`try_write_words`]'s.
#[cold]
#[inline(never)]
unsafe fn write_flagged(
    rseq: Option<Rseq>,
    channel: &Channel,
    id: &AtomicU16,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    let inside = channel
        .enter_flagged_without_contexts()
        .ok_or(Dropped::Closed)?;
    // SAFETY: as in `write_slowly`; the channel has no contexts as long as this is inside.
    unsafe { write_in_contexts(rseq, &inside, id, payload) }
}

/// Writes a record, whatever it takes, whose payload begins with the contexts of the channel, if
/// that has any.
///
/// # Safety
/// As [`try_write_words`]'s, behind contexts as the channel's description has them, and padded.
pub(crate) unsafe fn write_in_contexts(
    rseq: Option<Rseq>,
    inside: &GuardedChannel<'_>,
    id: &AtomicU16,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    let channel = inside.channel;
    let again = Refusal::Again;
    // SAFETY: the channel was opened as `Channel::open` asks for, and the payload begins with its
    // contexts, as this function's caller promises.
    unsafe {
        match rseq {
            Some(rseq) if channel.is_by::<MM_CID_WITH_CONTEXT>() => {
                percpu::write::<MM_CID_WITH_CONTEXT>(rseq, channel, id, payload, again)
            }
            Some(rseq) if channel.is_by::<CPU_ID_WITH_CONTEXT>() => {
                percpu::write::<CPU_ID_WITH_CONTEXT>(rseq, channel, id, payload, again)
            }
            _ if channel.is_shared() => reserve_commit::write_in_contexts(channel, id, payload),
            // Rings of CPUs, in a process without restartable sequences.
            _ => Err(Dropped::Closed),
        }
    }
}

#[cfg(test)]
mod tests;
