//! What happens while a recording is sent, for its user.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// An event of sending a recording to a relay.
#[derive(Debug)]
#[non_exhaustive]
pub enum RelayEvent {
    /// The relay has a session for the recording.
    Connected {
        /// The relay.
        address: String,
        /// The directory of the session, as the relay names it, escaped.
        path: String,
    },
    /// The relay cannot be reached, or failed.
    Lost {
        /// The relay.
        address: String,
        /// Why.
        why: String,
    },
    /// A chunk is on the relay, and confirmed.
    Sent {
        /// Its name; empty for a recording without chunks.
        name: String,
    },
    /// As much waits for the relay as there may be. Nothing is read from the rings until some of it
    /// was sent.
    Full {
        /// The output directory.
        path: PathBuf,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// There is room for more to wait for the relay.
    Available {
        /// The output directory.
        path: PathBuf,
    },
    /// A chunk that was sent could not be removed.
    NotRemoved {
        /// The chunk.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl RelayEvent {
    /// Whether this is a problem.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. } | Self::Full { .. } | Self::NotRemoved { .. }
        )
    }
}

impl fmt::Display for RelayEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { address, path } => {
                write!(f, "connected to {address}, directory \"{path}\"")
            }
            Self::Lost { address, why } => write!(f, "cannot send to {address}: {why} (retrying)"),
            Self::Sent { name } if name.is_empty() => write!(f, "the relay has the recording"),
            Self::Sent { name } => write!(f, "the relay has {name}"),
            Self::Full { path, limit } => write!(
                f,
                "\"{}\" has {limit} bytes that wait for the relay, the maximum: events stay in the rings",
                path.display()
            ),
            Self::Available { path } => write!(f, "\"{}\" has room again", path.display()),
            Self::NotRemoved { path, error } => {
                write!(
                    f,
                    "cannot remove \"{}\", which was sent: {error}",
                    path.display()
                )
            }
        }
    }
}
