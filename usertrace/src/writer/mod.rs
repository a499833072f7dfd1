//! Writes records into the rings of a channel.
//!
//! There are two protocols:
//!
//! - Restartable sequences (`rseq/`) write rings of a CPU: an event is one sequence, with no lock,
//!   no atomic instruction, no system call (A3). They write rings of a concurrency id, too, but out
//!   of line. The slow path (`percpu.rs`) prepares further sequences, which begin a sub-buffer or
//!   store a full time stamp.
//! - The shared protocol (`reserve_commit/`) reserves and commits records by atomic instructions.
//!   It serves processes without rseq, and rings that belong to no CPU.
//!
//! A channel may have tables in place of rings, which count events (`count.rs`). Only restartable
//! sequences write them.
//!
//! A thread may be killed, or the kernel may panic, at any instruction: readers can always tell
//! committed records from others (A10).
//!
//! A `vfork` child runs on its parent's thread block and rseq area, which the kernel does not know.
//! So a wrapper of `vfork` marks the block, and writers to rings of a CPU count their events as
//! lost meanwhile. The library does not notice a program that calls `clone` with `CLONE_VM` by
//! itself.
//!
//! Nothing here allocates, locks, or touches `errno` or lazily allocated thread-local storage. So
//! signal handlers, `malloc` itself, and code that interrupts another event may write events.

mod cell;
mod channel;
mod count;
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
mod together;
mod wait;
mod wakeup;

use std::sync::atomic::AtomicU16;

use self::channel::LONGEST;
use self::ring_index::{CPU_ID, CPU_ID_WITH_CONTEXT, MAX_RINGS, MM_CID, MM_CID_WITH_CONTEXT};

use crate::os;

pub use self::payload::Cursor;
pub use self::prefault::Prefault;
pub use self::rseq::{Rseq, RseqError};

pub(crate) use self::channel::{Channel, Geometry, GuardedChannel, QuiescenceSlot};
pub(crate) use self::count::{CountKey, Counted, CountedValue, count_directly};
pub(crate) use self::hooks::{Hooks, set as set_hooks};
pub(crate) use self::payload::Payload;
pub(crate) use self::quiescence::Readers;
pub(crate) use self::refusal::{Dropped, Refusal};
pub(crate) use self::remembered::Remembered;
pub(crate) use self::route::Route;
pub(crate) use self::rseq::has_mm_cid;
pub(crate) use self::thread::{get_here, is_lent, set_here, thread_pointer};
pub(crate) use self::together::write_together;
pub(crate) use self::wakeup::{ReaderWakeup, WakeupMethod};

/// The CPU that the calling thread ran on a moment ago. Async-signal-safe; leaves `errno` alone.
pub(crate) fn cpu(rseq: Option<Rseq>) -> u32 {
    let known = rseq.map(Rseq::index::<CPU_ID>);
    if let Some(cpu) = known.filter(|cpu| *cpu < MAX_RINGS) {
        return cpu;
    }
    os::thread::cpu()
}

/// The event path: writes a record with a payload of constant length, and reports whether it did.
///
/// It does not if anything else than storing the record is necessary; [`write_slowly`] finds out
/// what.
///
/// # Safety
/// `channel` is one that `route` led to, and was opened as [`Channel::open`] requires. The ids that
/// `route` has are of an event with such a payload.
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

/// [`try_write`] for a payload of any length that the caller has in memory.
///
/// # Safety
/// As [`try_write`]'s.
#[inline(always)]
pub(crate) unsafe fn try_write_routed(
    rseq: Rseq,
    channel: &Channel,
    route: &Route,
    payload: &[u64],
) -> bool {
    // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a payload,
    // as this function's caller promises. The length is checked.
    8 + 8 * payload.len() as u64 <= LONGEST
        && unsafe { rseq::record_routed(rseq, channel, route, payload) }
}

/// The event path for a payload of any length that the caller has in memory.
///
/// For rings of concurrency ids, processes without an update signal follow traces here.
///
/// # Safety
/// `channel` was opened as [`Channel::open`] requires. `id` is 0, or the id of an event with such a
/// payload, or that of a metadata record.
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
        Some(rseq) => unsafe {
            match percpu::record_words::<CPU_ID>(rseq, channel, id, payload) {
                Err(Refusal::NoRing) if channel.is_by::<MM_CID>() => {
                    hooks::follow_traces();
                    percpu::record_words::<MM_CID>(rseq, channel, id, payload)
                }
                result => result,
            }
        },
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        None => Ok(unsafe { reserve_commit::write(channel, id, payload) }?),
    }
}

/// The event path into the calling thread's own ring. False if it has none in the channel, or that
/// refuses; then nothing was done.
///
/// # Safety
/// As [`try_write_words`]'s.
#[inline(always)]
pub(crate) unsafe fn try_write_own(channel: &Channel, id: &AtomicU16, payload: &[u64]) -> bool {
    // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a payload,
    // as this function's caller promises.
    unsafe { reserve_commit::try_write_own(channel, id, payload) }
}

/// Likewise, into any ring of the shared protocol.
///
/// # Safety
/// As [`try_write_words`]'s.
#[inline(always)]
pub(crate) unsafe fn try_write_shared(channel: &Channel, id: &AtomicU16, payload: &[u64]) -> bool {
    // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a payload,
    // as this function's caller promises.
    unsafe { reserve_commit::try_write(channel, id, payload) }
}

/// The event path for a payload of `len` bytes that `fill` appends in the ring.
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
        Some(rseq) => unsafe {
            match percpu::record_made::<CPU_ID>(rseq, channel, id, len, fill) {
                Err(Refusal::NoRing) if channel.is_by::<MM_CID>() => {
                    hooks::follow_traces();
                    percpu::record_made::<MM_CID>(rseq, channel, id, len, fill)
                }
                result => result,
            }
        },
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
        None => Ok(unsafe { reserve_commit::write_made(channel, id, len, fill) }?),
    }
}

/// Writes a record, on the slow path if necessary.
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

/// The slow path: does what the event path could not do, and writes the record. `refusal`: why it
/// could not; `Again`: it did not try.
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
        // The refusal may be that of a ring of a CPU.
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises.
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

/// Writes a record into a channel that has another clock than the processor's, and no contexts. The
/// event path does not know of it.
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
    // SAFETY: as in `write_slowly`; the channel has no contexts as long as `inside` lives.
    unsafe { write_in_contexts(rseq, &inside, id, payload) }
}

/// Counts an event in a channel that counts.
#[inline]
pub(crate) fn count(
    rseq: Option<Rseq>,
    channel: &Channel,
    id: &AtomicU16,
    counted: &Counted,
) -> Result<(), Dropped> {
    match rseq {
        Some(rseq) => count::count(rseq, channel, id, counted),
        None => Err(count::lose(None, channel)),
    }
}

/// Counts an event as lost in a channel that counts.
pub(crate) fn lose_count(rseq: Option<Rseq>, channel: &Channel) -> Dropped {
    count::lose(rseq, channel)
}

/// Writes a record whose payload begins with the contexts of the channel, if that has any, on the
/// slow path.
///
/// # Safety
/// As [`try_write_words`]'s, behind contexts as the channel's description has them, and padded.
#[inline(always)]
pub(crate) unsafe fn write_in_contexts(
    rseq: Option<Rseq>,
    inside: &GuardedChannel<'_>,
    id: &AtomicU16,
    payload: Payload<'_>,
) -> Result<(), Dropped> {
    let channel = inside.channel;
    let tried = match (rseq, payload) {
        (Some(rseq), Payload::Words(words)) if channel.is_by::<CPU_ID_WITH_CONTEXT>() => {
            // SAFETY: the channel was opened as `Channel::open` asks for, and the payload begins
            // with its contexts, as this function's caller promises.
            unsafe { percpu::record_words::<CPU_ID_WITH_CONTEXT>(rseq, channel, id, words) }
        }
        _ => Err(Refusal::Again),
    };
    match tried {
        Ok(()) => Ok(()),
        // SAFETY: the payload begins with the contexts, as this function's caller promises.
        Err(refusal) => unsafe { write_in_contexts_slowly(rseq, inside, id, payload, refusal) },
    }
}

/// Likewise, for a record that was refused.
///
/// # Safety
/// As [`write_in_contexts`]'s.
#[inline(never)]
unsafe fn write_in_contexts_slowly(
    rseq: Option<Rseq>,
    inside: &GuardedChannel<'_>,
    id: &AtomicU16,
    payload: Payload<'_>,
    refusal: Refusal,
) -> Result<(), Dropped> {
    let channel = inside.channel;
    // SAFETY: the channel was opened as `Channel::open` asks for, and the payload begins with its
    // contexts, as this function's caller promises.
    unsafe {
        match rseq {
            Some(rseq) if channel.is_by::<MM_CID_WITH_CONTEXT>() => {
                percpu::write::<MM_CID_WITH_CONTEXT>(rseq, channel, id, payload, refusal)
            }
            Some(rseq) if channel.is_by::<CPU_ID_WITH_CONTEXT>() => {
                percpu::write::<CPU_ID_WITH_CONTEXT>(rseq, channel, id, payload, refusal)
            }
            _ if channel.is_shared() => reserve_commit::write_in_contexts(channel, id, payload),
            // A channel with rings of CPUs, in a process without restartable sequences.
            _ => Err(Dropped::Closed),
        }
    }
}

#[cfg(test)]
mod tests;
