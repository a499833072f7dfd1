//! The outcome of an event, with the numbers of `enum usertrace_outcome` in C.

use crate::writer::Dropped;

/// The outcome of an event, with the numbers of `enum usertrace_outcome` in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Outcome {
    /// No trace wants it; probes may have got it.
    Off = 0,
    /// Each trace that wants it recorded it.
    Recorded = 1,
    /// At least one trace that wants it had no room, and counted the loss.
    Lost = 2,
}

impl Outcome {
    /// Adds the result of one more slot.
    pub(crate) fn and(self, result: Result<(), Dropped>) -> Self {
        match (self, result) {
            (_, Err(Dropped::Lost)) | (Self::Lost, _) => Self::Lost,
            (_, Ok(())) => Self::Recorded,
            (unchanged, Err(Dropped::Closed)) => unchanged,
        }
    }
}
