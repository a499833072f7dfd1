//! Reads rings: one parser for rings that are being written, and for rings in a dump.
//!
//! The tools and the fallback use it. A traced program that has the kernel's buffers does not.
//! [`schema`] has the descriptions of events, which the control channel's ring carries.
//!
//! `sys/include/linux/ltt.h` says what a ring looks like. The bytes come from a process that may
//! have written anything anywhere, perhaps while they are read (F4), so
//! - geometry is never taken from the process, and is checked nevertheless ([`Geometry`]);
//! - a [`RingReader`] copies out of [`RingMemory`] first, at most one sub-buffer at a time, and
//!   parses the copy;
//! - what cannot be understood costs the rest of its sub-buffer, is counted ([`Counts`]), and is
//!   told ([`Item::Gap`]).
//!
//! How far a sub-buffer can be read says `reader.rs` for rings that are written by restartable
//! sequences (up to the head), and `shared.rs` for those with several writers; `recovery.rs` finds its
//! way where one of these died. In a ring that overwrites, a copy is believed if a look at the
//! positions afterwards says that it was not overtaken. A reader never waits: it ends where
//! something is to be waited for, and its caller says for how long ([`Patience`], [`Stall`]).

mod channel;
mod geometry;
mod item;
mod memory;
mod newest;
mod reader;
mod record;
mod recovery;
pub mod schema;
mod shared;
mod wait_policy;

pub use channel::{Channel, ChannelError, Format, MAX_RINGS};
pub use geometry::{Geometry, GeometryError, MAX_RING_SIZE, MIN_SUBBUF_SIZE};
pub use item::{Counts, GapKind, Item};
pub use memory::{Frozen, Positions, RingMemory, SharedBytes};
pub use newest::NewestSubbuf;
pub use reader::{RingReader, Run, SUBBUF_HEADER_LEN, Sink};
pub use record::{MetaLengths, PayloadLengths, TIME_MASK, record_id, record_time};
pub use wait_policy::{Patience, Stall};
