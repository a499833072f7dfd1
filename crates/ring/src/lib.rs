//! Reads rings, both those that a writer still fills and those in a dump.
//!
//! The tools and the fallback's daemons use this crate. A program that is traced through the
//! kernel's buffers does not. [`schema`] parses event descriptions, which the control channel
//! carries.
//!
//! `sys/include/linux/ltt.h` defines the layout of a ring. A traced process may write anything
//! anywhere in its rings, also while they are read (F4). Therefore:
//! - The geometry never comes from the process, and is checked nevertheless ([`Geometry`]).
//! - A [`RingReader`] first copies from [`RingMemory`], at most one sub-buffer at a time, and
//!   parses the copy.
//! - Bytes that it cannot parse cost the rest of their sub-buffer. The reader counts them
//!   ([`Counts`]) and reports an [`Item::Gap`].
//!
//! `reader.rs` reads sub-buffers of protocol `Rseq`, up to the head. `shared.rs` decides how much
//! of a sub-buffer with several writers is readable, and `recovery.rs` parses one in which a writer
//! died. In an overwriting ring, the reader checks the positions after each copy and drops a copy
//! that the writer overtook. A reader never blocks: it returns where it would have to wait, and its
//! caller decides for how long to retry ([`WaitPolicy`], [`StallDetector`]).
//!
//! Channels that count have tables in place of rings: [`CountTable`].

mod channel;
mod count;
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
pub use count::{CountCell, CountGaps, CountKey, CountTable, CountValues};
pub use geometry::{Geometry, GeometryError, MAX_RING_SIZE, MIN_SUBBUF_SIZE};
pub use item::{Counts, GapKind, Item};
pub use memory::{Frozen, Positions, RingMemory, SharedBytes};
pub use newest::NewestSubbuf;
pub use reader::{RingReader, Run, SUBBUF_HEADER_LEN, Sink};
pub use record::{MetaLengths, PayloadLengths, TIME_MASK, record_id, record_time};
pub use wait_policy::{StallDetector, WaitPolicy};
