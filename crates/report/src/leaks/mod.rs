//! Finds out who allocated the memory that was not freed.

mod collect;
mod culprit;
mod table;

pub use collect::Leaks;
pub use culprit::culprit;
pub use table::{Leak, LeakTable, Moment, Owner};
