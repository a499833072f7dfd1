//! One time stamp for the records of an event in the rings of several channels.
//!
//! To read the clock takes longer than the rest of a record. A sequence reads it itself, so that
//! times in a ring never go back. Here the writer first loads the heads of all rings, then reads
//! the clock, and each sequence compares the head: if it is the same, no record came into the ring
//! since, so all its times are earlier ones.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use super::channel::{Channel, LONGEST};
use super::rseq::{self, Rseq, Start, Step};
use crate::clock;

/// Slots whose records have the same time, at most.
const MOST: usize = 4;

/// A slot whose ring was looked at.
struct SlotStart<'a> {
    start: Start,
    channel: &'a Channel,
    slot: u32,
}

/// Writes a record to each slot of a mask, by `channel` and `id` of the slot. Returns the slots to
/// which it did not, for whatever reason.
///
/// # Safety
/// As [`try_write_words`](super::try_write_words)'s, for the channel and the id of each slot.
#[inline(always)]
pub(crate) unsafe fn write_together<'a>(
    rseq: Rseq,
    mask: u32,
    channel: impl Fn(usize) -> &'a Channel,
    id: impl Fn(usize) -> &'a AtomicU16,
    payload: &[u64],
) -> u32 {
    if 8 + 8 * payload.len() as u64 > LONGEST {
        return mask;
    }
    let cpu = rseq.cpu();
    // Not initialised beforehand, which would take as long as a record.
    let mut starts = [const { MaybeUninit::<SlotStart<'a>>::uninit() }; MOST];
    let (mut count, mut left) = (0, mask);
    for place in &mut starts {
        if left == 0 {
            break;
        }
        let slot = left.trailing_zeros();
        let channel = channel(slot as usize);
        let Some((control, epoch)) = channel.control_at(cpu) else {
            break;
        };
        let head = control.head.load(Ordering::Relaxed);
        let start = Start {
            epoch,
            cpu,
            control,
            head,
        };
        place.write(SlotStart {
            start,
            channel,
            slot,
        });
        count += 1;
        left &= left - 1;
    }
    // The clock is read after the loads of the heads.
    fence(Ordering::Acquire);
    let time = clock::cycles();
    for of_slot in &starts[..count] {
        // SAFETY: the loop above initialised the first `count`.
        let SlotStart {
            start,
            channel,
            slot,
        } = unsafe { of_slot.assume_init_ref() };
        let id = id(*slot as usize);
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises. `start` is of a ring of this channel.
        let step = unsafe { rseq::record_at(rseq, channel, id, payload, (start, time)) };
        if step != Step::Done {
            left |= 1 << slot;
        }
    }
    left
}
