//! How a thread finds its ring: by a field of its rseq area. And how many rings there can be.

/// Rings in a channel. A CPU number that must not be written with is given a bit beyond this
/// (`super::thread::NO_CPU`).
pub(super) const MAX_RINGS: u32 = 1 << 16;

/// `offsetof(struct rseq, cpu_id)`
pub(super) const CPU_ID: i32 = 4;
/// Likewise, for rings whose payloads begin with contexts: another number, as channels say of them
/// apart how many there are.
pub(super) const CPU_ID_WITH_CONTEXT: i32 = 1 << 8 | CPU_ID;
/// `offsetof(struct rseq, mm_cid)`
pub(super) const MM_CID: i32 = 24;
/// Likewise, for rings whose payloads begin with contexts.
pub(super) const MM_CID_WITH_CONTEXT: i32 = 1 << 8 | MM_CID;

/// Where `struct rseq` has what an `INDEX` stands for.
pub(super) const fn offset(index: i32) -> i32 {
    index & 0xff
}

/// What [`Rseq::index`](super::Rseq) is where there is none.
pub(super) const NO_INDEX: u32 = u32::MAX;
