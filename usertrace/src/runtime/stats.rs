//! Statistics per trace of what this process wrote.

use std::sync::atomic::Ordering;

use usertrace_sys::limits::SLOTS;

use super::current::state;
use super::objects;
use super::status::Refused;

/// Statistics of this process in one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceStats {
    /// The trace's slot.
    pub slot: usize,
    /// The trace's generation, which is unique.
    pub generation: u64,
    /// The trace is active.
    pub active: bool,
    /// Bytes written to the rings of all channels but the control channel, sub-buffer headers
    /// included.
    pub bytes: u64,
    /// Number of dropped events.
    pub lost: u64,
    /// Number of event types that cannot be written, because the control channel had no room for
    /// their descriptions.
    pub undescribed: u32,
    /// Number of libraries that were loaded or unloaded without a description, as the process has
    /// done so too often. Addresses in them have no names.
    pub undescribed_modules: u32,
    /// Number of conditions in the trace's filter that this process cannot use. They accept no
    /// event.
    pub unusable_conditions: u32,
    /// Why the trace gets no events of this process, if it gets none.
    pub refused: Option<Refused>,
}

/// Statistics per trace of what this process wrote.
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
            .event_channels(slot)
            .flat_map(|(_, channel)| {
                let counts = channel.counts();
                let positions = channel.positions();
                // Tables have no positions.
                positions.map(move |(head, lost)| (if counts { 0 } else { head }, lost))
            })
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
            undescribed_modules: objects::lost(),
            unusable_conditions: at.unusable.load(Ordering::Relaxed),
            refused,
        })
    })
}
