//! What this process wrote, trace by trace.

use std::sync::atomic::Ordering;

use usertrace_sys::limits::SLOTS;

use super::current::state;
use super::status::Refused;

/// What this process wrote into one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceStats {
    /// The trace's slot.
    pub slot: usize,
    /// The trace's generation: no two traces have the same.
    pub generation: u64,
    /// The trace is active.
    pub active: bool,
    /// Bytes written to the rings of all channels but the control channel, headers of sub-buffers
    /// included.
    pub bytes: u64,
    /// Events that were dropped.
    pub lost: u64,
    /// Kinds of events that cannot be written, because the control channel had no room for their
    /// descriptions.
    pub undescribed: u32,
    /// Why none of this process's events come into the trace, if that is so.
    pub refused: Option<Refused>,
}

/// What this process wrote, trace by trace. The numbers are of a moment ago: others may be writing.
pub fn stats() -> impl Iterator<Item = TraceStats> {
    (0..SLOTS).filter_map(|slot| {
        let state = state().filter(|state| state.is_attached())?;
        let at = &state.slots[slot];
        let refused = Refused::from_number(at.refused.load(Ordering::Relaxed));
        let generation = match (at.generation.load(Ordering::Relaxed), refused) {
            (0, Some(Refused::Limited)) => at.passed_over.load(Ordering::Relaxed),
            (0, Some(_)) => at.given.load(Ordering::Relaxed),
            (generation, _) => generation,
        };
        let (bytes, lost) = state
            .of_events(slot)
            .flat_map(|(_, channel)| channel.positions())
            .fold((0, 0), |(bytes, losses), (head, lost)| {
                (bytes + head, losses + lost)
            });
        (generation != 0).then(|| TraceStats {
            slot,
            generation,
            active: at.active.load(Ordering::Relaxed) != 0,
            bytes,
            lost,
            undescribed: at.undescribed.load(Ordering::Relaxed),
            refused,
        })
    })
}
