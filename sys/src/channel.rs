//! How the rings of a channel are written.

use crate::uapi::{
    LTT_MODE_BLOCK, LTT_MODE_DISCARD, LTT_MODE_OVERWRITE, LTT_PROTOCOL_RSEQ, LTT_PROTOCOL_SHARED,
    LTT_SCOPE_CPU, LTT_SCOPE_GLOBAL, LTT_SCOPE_MM_CID, LTT_SCOPE_THREAD,
};

/// Who writes a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scope {
    /// Whoever runs on a CPU.
    Cpu = LTT_SCOPE_CPU,
    /// A thread; it takes a free ring with its first record, or shares one if none is free.
    Thread = LTT_SCOPE_THREAD,
    /// The process.
    Global = LTT_SCOPE_GLOBAL,
    /// Whoever has a concurrency id (`mm_cid` of `struct rseq`): threads of a process that run at
    /// the same time have different ones, the lowest that are free.
    MmCid = LTT_SCOPE_MM_CID,
}

/// What becomes of records when a ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// New ones are dropped, and counted.
    Discard = LTT_MODE_DISCARD,
    /// The oldest sub-buffer is overwritten.
    Overwrite = LTT_MODE_OVERWRITE,
    /// Writers wait, as long as there is a reader.
    Block = LTT_MODE_BLOCK,
}

impl Mode {
    /// The mode with a number, if it is known here.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let all = [Self::Discard, Self::Overwrite, Self::Block];
        all.into_iter().find(|mode| *mode as u32 == number)
    }
}

/// How records are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Protocol {
    /// Each by one store of `head`, in a restartable sequence. For rings of a CPU, or of a
    /// concurrency id.
    Rseq = LTT_PROTOCOL_RSEQ,
    /// By an atomic reservation and an atomic commit count.
    Shared = LTT_PROTOCOL_SHARED,
}
