//! Sends a recording to LTTng's relay daemon while it is written.
//!
//! The relay confirms packets only within a session. After a break, nobody can say which of the
//! unconfirmed packets it has. So the sender must be able to send them again, and the relay must
//! replace what it has of them. The recording's own directory is the spool from which they are
//! sent, and its chunks are the unit: a new session sends all chunks in the spool from their
//! beginning, under the same names, and the relay replaces the files. A chunk that is finished and
//! confirmed leaves the spool.
//!
//! So each event is on the relay once, whatever breaks: the connection, the relay, this recorder,
//! or a daemon that writes the files ([`sent::SendError::Changed`]).
//!
//! The spool is bounded. When it is full, nobody reads the rings, which keep events and count those
//! that find no room.

mod event;
mod forwarder;
mod live;
mod metadata;
mod note;
mod sender;
mod sent;
mod shared;
mod spool;
mod viewer_wakeup;

pub use event::RelayEvent;
pub use sender::{SendOptions, SendRecordingError, send_recording};
pub use shared::{RelayOptions, RelaySummary};

pub(crate) use sender::{RelaySender, forget_unused};
pub(crate) use shared::{SpoolWriter, Times};
