//! One time stamp for the records of an event in the rings of several channels.
//!
//! To read the clock takes longer than all the rest of a record. A sequence reads it itself, so
//! that times in a ring never go back. Here the writer first loads the heads of all rings, then
//! reads the clock, and each sequence compares the head: if it is the same, no record came into the
//! ring since, so all its times are earlier ones.

use std::sync::atomic::{AtomicU16, Ordering, fence};

use super::channel::{Channel, LONGEST};
use super::percpu;
use super::rseq::{self, Rseq, Start, Step};
use crate::clock;

/// Channels whose rings are looked at beforehand, at most.
const MOST: usize = 4;

/// The rings of the first channels of an event, and the time after they were looked at.
#[derive(Debug)]
pub(crate) struct Together<'a> {
    starts: [Option<(&'a Channel, Start)>; MOST],
    time: u64,
}

impl<'a> Together<'a> {
    /// Looks at the rings of this CPU, and then at the clock.
    #[inline(always)]
    pub(crate) fn new(rseq: Rseq, channels: impl Iterator<Item = &'a Channel>) -> Self {
        let mut starts = [None; MOST];
        for (start, channel) in starts.iter_mut().zip(channels) {
            *start = percpu::start_here(rseq, channel).map(|start| (channel, start));
        }
        // The clock is read after the loads of the heads.
        fence(Ordering::Acquire);
        Self {
            starts,
            time: clock::cycles(),
        }
    }

    /// Writes a record into one of the channels, and reports whether it did.
    ///
    /// # Safety
    /// As [`try_write_words`](super::try_write_words)'s.
    #[inline(always)]
    pub(crate) unsafe fn try_write(
        &self,
        rseq: Rseq,
        channel: &Channel,
        id: &AtomicU16,
        payload: &[u64],
    ) -> bool {
        let mut starts = self.starts.iter().flatten();
        let Some((_, start)) = starts.find(|(of, _)| std::ptr::eq(*of, channel)) else {
            return false;
        };
        if 8 + 8 * payload.len() as u64 > LONGEST {
            return false;
        }
        // SAFETY: the channel was opened as `Channel::open` asks for, and the id is of such a
        // payload, as this function's caller promises. `start` is of a ring of this channel.
        let step = unsafe { rseq::record_at(rseq, channel, id, payload, (start, self.time)) };
        step == Step::Done
    }
}
