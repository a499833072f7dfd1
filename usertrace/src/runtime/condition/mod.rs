//! Conditions of filters: which events a trace gets, by the values that they have.
//!
//! An update compiles the conditions of all traces into a table of words (`table.rs`, `build.rs`),
//! and resolves the names in them for each call site that they decide about (`place.rs`). Such a
//! call site has [`CONDITIONAL`](crate::event::CONDITIONAL) in its mask, and takes the slow path.
//! That evaluates the condition on the payload before it reserves anything (`evaluate.rs`,
//! `payload_bytes.rs`). Other events cost what they cost without conditions.
//!
//! If the condition begins with a comparison of an integer, that comes first (`quick_test.rs`). The
//! call site then has a [`FlaggedAction`](crate::event::FlaggedAction) that leads to it.
//!
//! The table also has the places of the value and the key by which a channel counts an event.
//!
//! Later updates may replace the conditions while a thread evaluates them. The table is therefore
//! made of atomic words under sequence locks, and a reader never trusts an offset in it. There are
//! two banks: threads go on with the conditions in one while an update fills the other. A reader
//! that finds its bank filled again starts anew. After a few attempts it records the event.
//!
//! The table also has the triggers that an event may fire (`trigger_list.rs`). They are evaluated
//! after the event was recorded, and do not depend on whether it was. Call sites with triggers have
//! [`TRIGGERING`](crate::event::TRIGGERING) in their mask. In doubt, a trigger does not fire.

mod build;
mod evaluate;
mod payload_bytes;
mod place;
mod quick_place;
mod quick_test;
mod stack;
mod table;
mod trigger_list;

pub(super) use self::build::{Builder, Built, CountNames, Scratch};
pub(super) use self::evaluate::{counted, counted_quickly, find_fired, lets, test_quickly};
pub(super) use self::quick_test::QuickAnswer;
pub(super) use self::stack::SpareStack;
pub(super) use self::table::ConditionTable;
pub(super) use self::trigger_list::TriggerList;
