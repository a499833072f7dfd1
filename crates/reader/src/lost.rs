//! Losses that streams report.

use std::path::PathBuf;

/// What was lost, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// This many events.
    Events(u64),
    /// This many packets of events.
    Packets(u64),
}

/// A loss of events or packets in a stream.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The trace, as an index into [`Reader::traces`](crate::Reader::traces).
    pub trace: usize,
    /// The stream's file.
    pub path: PathBuf,
    /// The CPU, if the ring belonged to one.
    pub cpu: Option<u32>,
    /// What was lost.
    pub kind: LossKind,
    /// Start of the loss, in ns since 1970.
    pub begin: i64,
    /// End of the loss, in ns since 1970.
    pub end: i64,
}
