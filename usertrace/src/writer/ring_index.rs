//! Ring indices: by which field of its rseq area a thread finds its ring, and the limit of rings.

/// Most rings that a channel can have. The bit of this value marks CPU numbers that must not be
/// used (`super::thread::NO_CPU`).
pub(super) const MAX_RINGS: u32 = 1 << 16;

/// `offsetof(struct rseq, cpu_id)`
pub(super) const CPU_ID: i32 = 4;
/// Likewise, for channels that the event path does not know of, as their payloads begin with
/// contexts. Channels have a count of rings of their own for it.
pub(super) const CPU_ID_WITH_CONTEXT: i32 = 1 << 8 | CPU_ID;
/// `offsetof(struct rseq, mm_cid)`
pub(super) const MM_CID: i32 = 24;
/// Likewise, for channels that the event path does not know of.
pub(super) const MM_CID_WITH_CONTEXT: i32 = 1 << 8 | MM_CID;

/// Likewise, for tables of channels that count.
pub(super) const CPU_ID_OF_TABLE: i32 = 2 << 8 | CPU_ID;

/// Offset in `struct rseq` of the field that an `INDEX` stands for.
pub(super) const fn offset(index: i32) -> i32 {
    index & 0xff
}

/// What [`Rseq::index`](super::Rseq) returns if there is none.
pub(super) const NO_INDEX: u32 = u32::MAX;
