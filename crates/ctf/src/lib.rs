//! Writes traces as CTF 1.8 or CTF 2, for `babeltrace2` and Trace Compass (F1).
//!
//! One process makes one CTF trace, a directory with `metadata` and one stream file for each ring
//! of each channel, and with a UUID of its own; readers merge as many as they are given by time
//! (E8).
//!
//! An event is, to the byte, what a short record is in a ring: a word of id and time, and the
//! payload, from a multiple of 8 bytes on. So those that a reader of the ring has looked at, and
//! that lie behind each other, are copied as they are ([`StreamWriter::room`]). Sub-buffers are
//! never copied as such: records are put into new packets without holes, since a reader gives up
//! the whole trace at the first byte that it does not understand.
//!
//! Any event may be in any channel. What a packet says of whose it is depends on who has the rings
//! of its channel, so there is a class of streams for each such kind that a process has, and each
//! event is declared for all of these.
//!
//! The versions differ in the `metadata` file alone: streams are the same, to the byte. What is
//! declared is described once (`description.rs`), and said in TSDL (`tsdl.rs`) or JSON (`json.rs`).
//!
//! `events_discarded` of a stream counts what the ring lost, and one for each gap in it, of which
//! nobody knows how many events it was. A reader can only tell of what was discarded between two
//! packets, so the event behind it is in a packet of its own, and empty packets stand at the
//! beginning and at the end, if something was lost there.

/// The file of a trace that describes it, by CTF.
pub const METADATA: &str = "metadata";

mod clock;
mod description;
mod file;
mod info;
mod json;
mod names;
mod packet;
mod packet_memory;
mod pages;
mod process;
pub mod recording;
mod stream;
mod trace;
mod tsdl;
pub mod unfinished;
mod unwritten;
mod version;

pub use clock::Clock;
pub use description::{CREATED, PROCESS_NUMBER};
pub use info::{Crash, TraceInfo, TraceOrigin};
pub use json::{LOGLEVELS, READER_NAMESPACE};
pub use names::{file_name, kernel_name};
pub use process::{Identity, ProcessSummary, ProcessWriter, RingCounts, RingState, RingSummary};
pub use stream::{
    EVENT_HEADER_LEN, PACKET_HEADER_LEN, PACKET_MAGIC, StreamChannel, StreamOwner, StreamState,
    StreamWriter,
};
pub use trace::{TraceWriter, mend, new_uuid};
pub use unwritten::is_full;
pub use version::{RECORD_SEPARATOR, UnknownVersion, Version};
