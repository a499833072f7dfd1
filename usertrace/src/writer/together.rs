//! One time stamp for the records of an event in the rings of several channels.
//!
//! To read the clock takes longer than all the rest of a record. A sequence reads it itself, so
//! that times in a ring never go back. Here the writer first loads the heads of all rings, then
//! reads the clock, and each sequence compares the head: if it is the same, no record came into the
//! ring since, so all its times are earlier ones.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use super::channel::{Channel, LONGEST};
use super::ring_index::CPU_ID;
use super::rseq::{self, Rseq, Start, Step};
use crate::clock;

/// Channels of an event, at most.
const MOST: usize = 4;

/// Channels of an event, and the state of their rings of one CPU.
#[derive(Debug)]
pub(crate) struct Together<'a> {
    rseq: Rseq,
    cpu: u32,
    count: usize,
    // Not initialised before they are used, which would take as long as a record.
    starts: [MaybeUninit<(&'a Channel, Start)>; MOST],
}

impl<'a> Together<'a> {
    /// No channel yet.
    #[inline(always)]
    pub(crate) fn new(rseq: Rseq) -> Self {
        Self {
            rseq,
            cpu: rseq.index::<CPU_ID>(),
            count: 0,
            starts: [const { MaybeUninit::uninit() }; MOST],
        }
    }

    /// Adds a channel, and reports whether it did: there may be too many, or no ring for this CPU.
    #[inline(always)]
    pub(crate) fn add(&mut self, channel: &'a Channel) -> bool {
        let Some(place) = self.starts.get_mut(self.count) else {
            return false;
        };
        let Some((control, epoch)) = channel.control_at(self.cpu) else {
            return false;
        };
        let start = Start {
            epoch,
            cpu: self.cpu,
            control,
            head: control.head.load(Ordering::Relaxed),
        };
        place.write((channel, start));
        self.count += 1;
        true
    }

    /// Writes the record into each channel for which there is an id, in the order in which they
    /// were added. Returns a bit for each of them that it was not written to.
    ///
    /// # Safety
    /// As [`try_write_words`](super::try_write_words)'s, for each channel and its id.
    #[inline(always)]
    pub(crate) unsafe fn write<'b>(
        &self,
        ids: impl Iterator<Item = &'b AtomicU16>,
        payload: &[u64],
    ) -> u32 {
        if 8 + 8 * payload.len() as u64 > LONGEST {
            return (1 << self.count) - 1;
        }
        // The clock is read after the loads of the heads.
        fence(Ordering::Acquire);
        let time = clock::cycles();
        let mut left = 0;
        for ((n, start), id) in self.starts[..self.count].iter().enumerate().zip(ids) {
            // SAFETY: `add` initialised the first `count`.
            let (channel, start) = unsafe { start.assume_init_ref() };
            // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
            // payload, as this function's caller promises. `start` is of a ring of this channel.
            let step = unsafe { rseq::record_at(self.rseq, channel, id, payload, (start, time)) };
            if step != Step::Done {
                left |= 1 << n;
            }
        }
        left
    }
}
