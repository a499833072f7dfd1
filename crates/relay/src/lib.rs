//! Sends traces to LTTng's relay daemon, `lttng-relayd`.
//!
//! The relay daemon takes the streams of many hosts, keeps them as CTF, and serves them to live
//! viewers. This crate speaks its protocol as of LTTng 2.11, which later relays accept, too: a
//! relay uses the lower one of the two versions. The layout of messages is that of
//! `src/common/sessiond-comm/relayd.h` in lttng-tools.
//!
//! A sender has two connections. On the control connection, each command has a reply, except for
//! metadata. The data connection takes packets, and has no replies. So only
//! [`Connection::is_pending`] says whether the relay has written a packet.
//!
//! Nothing here trusts the relay: lengths are checked before memory is allocated, each reply has a
//! time limit, and names that come from a relay are escaped when they are printed.

#![forbid(unsafe_code)]

mod address;
mod connection;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod limits;
pub mod message;

pub use address::{Address, AddressError};
pub use connection::{Connection, PART, SourceError};
pub use error::RelayError;
pub use limits::{Cancel, TimeLimits};
pub use message::{Index, NO_PACKET, Session};
