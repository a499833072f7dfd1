//! Writes traces as CTF 1.8 or CTF 2, for `babeltrace2` and Trace Compass (F1). Used by the tools
//! and by the fallback's daemons.
//!
//! Each process has its own CTF trace: a directory with `metadata`, one stream file for each ring
//! of each channel, and its own UUID. Readers merge any number of traces by time (E8).
//!
//! An event has the same bytes as a short record in a ring: a word of id and time, and the payload,
//! aligned to 8 bytes. So a run of records that the ring's reader has validated is copied unchanged
//! ([`StreamWriter::room`]). Whole sub-buffers are never copied: new packets have no holes, since a
//! reader gives up the whole trace at the first byte that it does not understand.
//!
//! Any event may be in any channel. The context of a packet depends on the owner of the ring, by
//! the channel's scope. So there is a class of streams for each scope that a process has, and each
//! event is declared for all of these classes.
//!
//! The versions only differ in the `metadata` file. `description.rs` describes the declarations
//! once; `tsdl.rs` and `json.rs` write them as TSDL or JSON.
//!
//! A channel that counts has an event [`COUNT_EVENT`] for each counter and moment at which its
//! table was read, in a class of streams of its own. The last one of each counter is its final
//! state.
//!
//! A stream of its own class has events about the modules that the process has loaded
//! ([`is_module_event`]): the state at the first event, and each change.
//!
//! `events_discarded` of a stream counts the events that the ring lost, plus one for each gap in
//! it, as the number of events in a gap is unknown. A reader only learns what was discarded between
//! two packets. So the event behind a loss is in a packet of its own, and empty packets mark losses
//! at the beginning and at the end.

/// Name of the file that describes a trace, by CTF.
pub const METADATA: &str = "metadata";

mod clock;
mod count;
mod description;
mod file;
mod info;
mod json;
mod modules;
mod names;
mod packet;
mod packet_header;
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
pub use count::COUNT_EVENT;
pub use description::{CREATED, PROCESS_NUMBER, format_uuid};
pub use info::{Crash, TraceInfo, TraceOrigin};
pub use json::{LOGLEVELS, READER_NAMESPACE};
pub use modules::{MODULE_PROVIDERS, UNUSED_EVENT, is_module_event};
pub use names::{file_name, kernel_name};
pub use packet_header::PacketHeader;
pub use process::{Identity, ProcessSummary, ProcessWriter, RingCounts, RingState, RingSummary};
pub use stream::{
    EVENT_HEADER_LEN, PACKET_HEADER_LEN, PACKET_MAGIC, StreamChannel, StreamOwner, StreamState,
    StreamWriter,
};
pub use trace::{TraceWriter, complete_declarations, mend, new_uuid};
pub use tsdl::SIGNATURE;
pub use unwritten::is_full;
pub use version::{RECORD_SEPARATOR, UnknownVersion, Version};
