//! Reading rings: one parser for rings that are being written and for rings in a dump.
//!
//! `sys/include/linux/ltt.h` says what a ring looks like. The bytes come from a process that may have written anything
//! anywhere, perhaps while they are read (F4), so
//! - geometry is never taken from the process, and is checked nevertheless ([`Geometry`]);
//! - a [`RingReader`] copies out of [`RingMemory`] first, at most one sub-buffer at a time, and parses the copy;
//! - what cannot be understood costs the rest of its sub-buffer, is counted ([`Counts`]), and is told ([`Item::Gap`]).

mod channel;
mod geometry;
mod memory;
mod reader;

pub use channel::{Channel, ChannelError, MAX_RINGS};
pub use geometry::{Geometry, GeometryError, MAX_RING_SIZE, MIN_SUBBUF_SIZE};
pub use memory::RingMemory;
pub use reader::{
    Counts, GapKind, Item, MetaLengths, PayloadLengths, RingReader, SUBBUF_HEADER_LEN,
};
