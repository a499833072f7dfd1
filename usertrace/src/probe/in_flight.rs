//! Tracks threads that are executing probes, so that a disconnected probe can be waited for, and so
//! that no probe is called recursively.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os;

/// Calls of probes at a time.
const PLACES: usize = 256;

/// Bits of a place that hold the probe's number plus 1; those above hold the thread's id.
const PROBE_BITS: u32 = 8;

/// One place for each call in progress; 0: free. All zeros: no thread is in a probe.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct InFlight([AtomicU64; PLACES]);

/// Marks the calling thread as executing a probe, while it lives.
#[derive(Debug)]
pub(super) struct ProbeGuard<'a> {
    place: &'a AtomicU64,
    mark: u64,
}

/// Why a probe cannot be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This thread is executing it already.
    Inside,
    /// Too many threads are executing probes.
    Full,
}

fn mark(probe: usize, thread: u32) -> u64 {
    u64::from(thread) << PROBE_BITS | (probe as u64 + 1)
}

fn is_gone(mark: u64) -> bool {
    !os::thread::may_exist(os::process::id(), (mark >> PROBE_BITS) as u32)
}

impl InFlight {
    /// Enters a probe. The caller must check afterwards that the probe is still to be called.
    pub(super) fn enter(&self, probe: usize) -> Result<ProbeGuard<'_>, Refusal> {
        let mark = mark(probe, os::thread::id());
        // Relaxed: only this thread stores its own marks.
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
        // A thread that ended in a probe, or that is in the parent process, never frees its place.
        let take_over = |place: &&AtomicU64| {
            let other = place.load(Ordering::Relaxed);
            is_gone(other) && take(place, other)
        };
        let free = self.0.iter().find(|place| take(place, 0));
        let place = free.or_else(|| self.0.iter().find(take_over));
        let place = place.ok_or(Refusal::Full)?;
        Ok(ProbeGuard { place, mark })
    }

    /// Waits until no other thread is executing the probe. The caller has already made it
    /// unreachable.
    pub(super) fn wait(&self, probe: usize) {
        let thread = os::thread::id();
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

impl Drop for ProbeGuard<'_> {
    fn drop(&mut self) {
        // Release pairs with `wait`, which sees all that the probe stored. In a child that was
        // forked in the probe, the place is free or reused by now, and the exchange fails.
        let _ = self
            .place
            .compare_exchange(self.mark, 0, Ordering::Release, Ordering::Relaxed);
    }
}
