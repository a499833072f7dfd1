//! Errors of a connection to a relay.

use std::io;

/// Why a relay cannot be used, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The host is unknown, or nobody answers there.
    #[error("cannot connect to {address}")]
    Connect {
        /// Host and port.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection broke while it was to {what}")]
    Broken {
        /// The command.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The relay does not answer, or takes no data.
    #[error("the relay did not {what} in time")]
    TimedOut {
        /// The command.
        what: &'static str,
    },
    /// The relay speaks another version of the protocol.
    #[error(
        "the relay speaks version {major}.{minor} of the protocol; it must be 2.11 or a later 2.x"
    )]
    Version {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
    },
    /// The relay refused a command.
    #[error("the relay refused to {what}: error {code} of LTTng")]
    Refused {
        /// The command.
        what: &'static str,
        /// Number of the error, see `lttng/lttng-error.h`.
        code: u32,
    },
    /// The answer of the relay makes no sense.
    #[error("the relay's answer to the command to {what} is invalid: {why}")]
    Invalid {
        /// The command.
        what: &'static str,
        /// What is wrong, with everything escaped that comes from the relay.
        why: String,
    },
    /// The sender was told to give up.
    #[error("sending was given up")]
    Cancelled,
}
