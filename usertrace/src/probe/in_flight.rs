//! Who is in a probe, so that one that was taken out can be waited for, and none is called from its
//! own middle.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::writer;

/// InFlight at a time.
const PLACES: usize = 256;

/// Bits of a place that say which probe it is; those above are the thread.
const PROBE_BITS: u32 = 8;

/// A place is 0 if it is free. All zeros: nobody is in a probe.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct InFlight([AtomicU64; PLACES]);

/// The calling thread is in a probe, as long as this lives.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    place: &'a AtomicU64,
    mark: u64,
}

/// Why a probe is not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This thread is in it.
    Inside,
    /// Too many others are in probes.
    Full,
}

fn mark(probe: usize, thread: u32) -> u64 {
    u64::from(thread) << PROBE_BITS | (probe as u64 + 1)
}

fn is_gone(mark: u64) -> bool {
    !writer::is_thread(writer::process(), (mark >> PROBE_BITS) as u32)
}

impl InFlight {
    /// Enters a probe. Whether that is still to be called is looked at after this.
    pub(super) fn enter(&self, probe: usize) -> Result<Visit<'_>, Refusal> {
        let mark = mark(probe, writer::thread());
        // Relaxed: of this very thread's.
        if self
            .0
            .iter()
            .any(|place| place.load(Ordering::Relaxed) == mark)
        {
            return Err(Refusal::Inside);
        }
        // SeqCst: pairs with `wait`, see `Callsite::probes`.
        let take = |place: &AtomicU64, from| {
            place
                .compare_exchange(from, mark, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        // Of a thread that ended in a probe, or that is the parent's, nothing comes any more.
        let take_over = |place: &&AtomicU64| {
            let other = place.load(Ordering::Relaxed);
            is_gone(other) && take(place, other)
        };
        let free = self.0.iter().find(|place| take(place, 0));
        let place = free.or_else(|| self.0.iter().find(take_over));
        let place = place.ok_or(Refusal::Full)?;
        Ok(Visit { place, mark })
    }

    /// Waits until no other thread is in a probe that nobody comes to any more by the way that is
    /// meant.
    pub(super) fn wait(&self, probe: usize) {
        let thread = writer::thread();
        for place in &self.0 {
            loop {
                // SeqCst: as in `enter`.
                let other = place.load(Ordering::SeqCst);
                let is_other = other != mark(probe, thread)
                    && other & ((1 << PROBE_BITS) - 1) == probe as u64 + 1;
                if !is_other || is_gone(other) {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        // Release pairs with `wait`: what the probe did is done. Not so in the child of a fork in
        // the probe, where all are free, or another one's by now.
        let _ = self
            .place
            .compare_exchange(self.mark, 0, Ordering::Release, Ordering::Relaxed);
    }
}
