//! What became of an event.

use crate::writer::Dropped;

/// What became of an event: as C has it, `enum usertrace_outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Outcome {
    /// No trace wants it. Probes may have had it.
    Off = 0,
    /// Each trace that wants it has it.
    Recorded = 1,
    /// At least one trace that wants it has no room for it, and counted that.
    Lost = 2,
}

impl Outcome {
    /// Of the event in one more slot.
    pub(crate) fn and(self, result: Result<(), Dropped>) -> Self {
        match (self, result) {
            (_, Err(Dropped::Lost)) | (Self::Lost, _) => Self::Lost,
            (_, Ok(())) => Self::Recorded,
            (so_far, Err(Dropped::Closed)) => so_far,
        }
    }
}
