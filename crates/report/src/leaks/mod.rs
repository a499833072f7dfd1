//! Finds out who allocated the memory that was not freed.

mod collect;
mod table;

pub use collect::Leaks;
pub(crate) use table::rows;
pub use table::{Leak, LeakTable, Moment, Owner};
