//! Conditions of filters: which events a trace gets, by the values that they have.
//!
//! An update compiles the conditions of all traces into a table of words (`table.rs`, `build.rs`),
//! and resolves the names in them for each call site that they decide about (`place.rs`). Such a
//! call site has [`CONDITIONAL`](crate::event::CONDITIONAL) in its mask, and takes the slow path.
//! That evaluates the condition on the payload before it reserves anything (`evaluate.rs`,
//! `payload_bytes.rs`). Other events cost what they cost without conditions.
//!
//! The next update may replace the table while a thread evaluates. The table is therefore a
//! sequence lock of atomic words, in which a reader never trusts an offset. A reader that finds the
//! table changed starts again. After a few attempts it records the event.

mod build;
mod evaluate;
mod payload_bytes;
mod place;
mod table;

pub(super) use self::build::{Builder, Built, Scratch};
pub(super) use self::evaluate::lets;
pub(super) use self::table::ConditionTable;
