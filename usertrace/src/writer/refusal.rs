//! Why a record was not written, for good ([`Dropped`]) or by one attempt ([`Refusal`]).

/// Why a record was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// There was no room, or the writer gave up: counted as lost in the ring.
    Lost,
    /// The channel is closed or wiped, or the event is not described in it. No ring counts it.
    Closed,
}

/// Why one attempt to write a record failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no ring for this thread's CPU, or no id: the channel is closed, wiped, or has rings
    /// of another kind, or the thread has no rseq area.
    NoRing,
    /// The record does not fit into the current sub-buffer, or none was begun.
    NeedSubbuf,
    /// A record with the full time must be written first.
    NeedTime,
    /// The kernel aborted the sequence.
    Aborted,
    /// Another writer came first, or no attempt was made yet: try again.
    Again,
    /// The record is longer than a sub-buffer.
    TooLong,
    /// The record was dropped, and counted as lost.
    Lost,
}

impl From<Dropped> for Refusal {
    fn from(dropped: Dropped) -> Self {
        match dropped {
            Dropped::Lost => Self::Lost,
            Dropped::Closed => Self::NoRing,
        }
    }
}
