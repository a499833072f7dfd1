//! The control channel of a traced program: what both of its ends share.
//!
//! - [`protocol`] defines the packets on the socket: requests, answers and reports, all of them
//!   text.
//! - [`socket`] makes the socket's system calls, and [`Text`] formats packets without allocating.
//!   Both are async-signal-safe: the program's end may be a signal handler.
//! - `Client` is the controller's end (feature `client`).
//!
//! The module `control` of the library is the program's end.

mod answer;
#[cfg(feature = "client")]
mod client;
pub mod protocol;
pub mod socket;

pub use answer::{Text, error};
#[cfg(feature = "client")]
pub use client::{Client, ListedEvent, ListedProbe, ProcessEnd, Report, sockets};
