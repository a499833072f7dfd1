//! What a stream says that is missing in it.

use std::path::PathBuf;

/// What was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// So many events.
    Events(u64),
    /// So many packets of events.
    Packets(u64),
}

/// Something is missing in a stream.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The trace: its place in [`Reader::traces`](crate::Reader::traces).
    pub trace: usize,
    /// The stream's file.
    pub path: PathBuf,
    /// The CPU whose ring it was, if it was one's.
    pub cpu: Option<u32>,
    /// What.
    pub kind: LossKind,
    /// It is missing since then, in ns since 1970.
    pub begin: i64,
    /// And up to then.
    pub end: i64,
}
