//! Events: how a program declares them, and how the library composes their records.
//!
//! [`tracepoint!`](crate::tracepoint) declares an event, [`event!`](crate::event!) writes one:
//!
//! ```
//! usertrace::tracepoint! {
//!     /// A request was served.
//!     pub mod served {
//!         provider: "shop",
//!         name: "served",
//!         loglevel: Info,
//!         fields: { status: u16, bytes: u64, path: str },
//!     }
//! }
//!
//! fn serve(path: &str) {
//!     // The arguments are evaluated only if a trace wants the event.
//!     usertrace::event!(served, 200, path.len() as u64, path);
//! }
//! # serve("/");
//! ```
//!
//! While no trace is active, an event costs one load and one branch. A field has one of these
//! types:
//!
//! | type | argument | |
//! |---|---|---|
//! | `u8` to `u64`, `usize`, `i8` to `i64`, `isize` | the same | |
//! | `x8` to `x64` | `u8` to `u64` | shown in hexadecimal |
//! | `u16be` to `u64be`, `i16be`…, `x16be`… | `u16`… | given in the machine's byte order, stored in the network's |
//! | `f32`, `f64`, `bool` | the same | |
//! | `ptr` | `*const ()` | an address; shown in hexadecimal |
//! | `str` | `&str` | ends at its first NUL, if it has one |
//! | `bytes` | `&[u8]` | as `[u8]` |
//! | `[T; N]` | `&[T; N]` | `N` of a type above `str`: from 1 to 65535 |
//! | `[T]` | `&[T]` | a sequence: as many as there are |
//! | `enum T { Label = 0, "a label" = 1..=3 }` | as `T`, an integer | labels are shown with the value |
//!
//! ```
//! usertrace::tracepoint! {
//!     pub mod received {
//!         provider: "net",
//!         name: "received",
//!         loglevel: Debug,
//!         fields: {
//!             source: [u8; 4],
//!             port: u16be,
//!             state: enum u8 { Idle = 0, Busy = 1..=3, "not known" = 255 },
//!             times: [u64],
//!             data: bytes,
//!         },
//!     }
//! }
//!
//! usertrace::event!(received, &[127, 0, 0, 1], 80, 2, &[17, 18], b"GET /");
//! ```
//!
//! [`marker!`](crate::marker) declares an event where it is written, with a format string.
//!
//! A record that is longer than a sub-buffer of the trace is dropped, and counted as lost.
//! Constants, such as the length in `[u8; super::LEN]`, are resolved in the module that
//! `tracepoint!` creates.

mod callsite;
pub(crate) mod describe;
pub(crate) mod field;
mod flagged_route;
pub(crate) mod ip;
mod macros;
pub(crate) mod number;
mod outcome;
pub(crate) mod section;
mod text;

pub use self::callsite::{Callsite, Loglevel};
pub use self::outcome::Outcome;

pub(crate) use self::callsite::{
    ATTACH, CONDITIONAL, COUNTED, PROBED, TRIGGERING, WANTS_IP, is_name_byte, is_valid,
};
pub(crate) use self::field::{Buffer, BufferMark, Payload, Scratch, SizedBuffer, words_for};
pub(crate) use self::flagged_route::{
    CountTarget, FirstWords, FlaggedAction, FlaggedWord, IntegerPlace,
};
pub(crate) use self::ip::{Frame, Place, ip_of, place_of};
pub(crate) use self::section::{Entry, Section, own};
