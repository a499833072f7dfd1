//! The control channel of a traced program, as both of its ends see it.
//!
//! - [`protocol`] is what goes over the socket: requests, answers and reports, all of them text.
//! - [`socket`] makes the socket's system calls, and [`Text`] puts packets together in memory that
//!   is there. Both are async-signal-safe: the program's end may be a signal handler.
//! - `Client` is the controller's end (feature `client`).
//!
//! The program's end is the module `control` of the library.

mod answer;
#[cfg(feature = "client")]
mod client;
pub mod protocol;
pub mod socket;

pub use answer::{Text, error};
#[cfg(feature = "client")]
pub use client::{Client, Ending, Listed, ListedProbe, Report, sockets};
