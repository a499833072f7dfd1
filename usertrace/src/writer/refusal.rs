//! Why a record was not written: for good, or at the first try.

/// Why a record was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// Counted in the ring.
    Lost,
    /// The channel is closed, or was wiped, or the event is not described in it; there is nothing
    /// to count in.
    Closed,
}

/// Why a sequence did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no ring for this thread's CPU, or no id: closed, wiped, with rings of another kind,
    /// or a thread without rseq.
    NoRing,
    /// The record does not fit into the sub-buffer, or there is none.
    NeedSubbuf,
    /// A full time stamp must come first.
    NeedTime,
    /// It was interrupted.
    Aborted,
    /// Something changed meanwhile.
    Again,
    /// It is longer than a sub-buffer.
    TooLong,
    /// It was dropped, and counted already.
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
