//! The properties of a channel's rings: scope, mode and protocol.

use crate::uapi::{
    LTT_MODE_BLOCK, LTT_MODE_COUNT, LTT_MODE_DISCARD, LTT_MODE_OVERWRITE, LTT_PROTOCOL_COUNT,
    LTT_PROTOCOL_RSEQ, LTT_PROTOCOL_SHARED, LTT_SCOPE_CPU, LTT_SCOPE_GLOBAL, LTT_SCOPE_MM_CID,
    LTT_SCOPE_THREAD,
};

/// The unit that a ring belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scope {
    /// A CPU: the thread that runs on it writes the ring.
    Cpu = LTT_SCOPE_CPU,
    /// A thread. It takes a free ring with its first record, or shares one if none is free.
    Thread = LTT_SCOPE_THREAD,
    /// The process.
    Global = LTT_SCOPE_GLOBAL,
    /// A concurrency id (`mm_cid` of `struct rseq`). Threads of a process that run at the same time
    /// have different ids, the lowest that are free.
    MmCid = LTT_SCOPE_MM_CID,
}

/// The behaviour when a ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// New records are dropped, and counted.
    Discard = LTT_MODE_DISCARD,
    /// The oldest sub-buffer is overwritten.
    Overwrite = LTT_MODE_OVERWRITE,
    /// Writers wait, as long as there is a reader.
    Block = LTT_MODE_BLOCK,
    /// There are no rings: events are counted in tables.
    Count = LTT_MODE_COUNT,
}

impl Mode {
    /// The mode with a number; none if it is unknown.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let all = [Self::Discard, Self::Overwrite, Self::Block, Self::Count];
        all.into_iter().find(|mode| *mode as u32 == number)
    }
}

/// The protocol by which records are reserved and committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Protocol {
    /// One store of `head` commits a record, in a restartable sequence. For rings of a CPU or a
    /// concurrency id.
    Rseq = LTT_PROTOCOL_RSEQ,
    /// An atomic reservation, and an atomic commit count.
    Shared = LTT_PROTOCOL_SHARED,
    /// A restartable sequence updates a cell of a table, and one store of its count commits that.
    Count = LTT_PROTOCOL_COUNT,
}
