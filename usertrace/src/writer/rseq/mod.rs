//! Restartable sequences: short pieces of code that the kernel restarts if it interrupted them.
//!
//! - `area.rs`: where a thread's rseq area is. `registration.rs` registers one of the library's own
//!   where the C library has none, and `find.rs` chooses.
//! - `step.rs`: arguments and results of the sequences of the slow path.
//! - `x86_64.rs`, `aarch64.rs`: the sequences themselves.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;
mod area;
mod find;
mod registration;
mod step;

pub(super) use self::arch::{
    advance, advance_at, claim, count_in_cell, count_plain, count_value, lose, note_time, record,
    record_at, record_routed, record_words, update_cell,
};
#[cfg(test)]
pub(in crate::writer) use self::area::forget_mm_cid;
pub(crate) use self::area::has_mm_cid;
pub use self::area::{Rseq, RseqError};
#[cfg(test)]
pub(super) use self::step::SLOW_EACH;
pub(super) use self::step::{Advance, CellStart, CellUpdate, Start, Step};

/// How often a writer tries a sequence before it drops the record.
///
/// Each aborted try was interrupted within some tens of nanoseconds. By chance this happens twice
/// in a row at most; a debugger that steps through the code causes more.
pub(super) const TRIES: u32 = 32;
