//! Events that a program declares, and how their records come to be.
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
//! As long as no trace is active, an event is one load and one branch. Types of fields are `u8` to `u64`, `i8` to
//! `i64`, `x8` to `x64` (unsigned, shown in hexadecimal), `f32`, `f64`, `bool` and `str`. A `str` ends at its first
//! NUL, if it has one. A record that would be longer than a sub-buffer of the trace is not cut: it is dropped, and
//! counted as lost.

mod callsite;
mod field;
mod macros;
mod record;

pub use self::callsite::{Callsite, Entry, Loglevel, callsites};
pub use self::field::{Buffer, Field, Payload, Short};
pub use self::record::{Outcome, record, record_variable};
#[doc(hidden)]
pub use crate::writer::Cursor;

pub(crate) use self::callsite::ATTACH;
