//! Why probes cannot be changed.

use std::fmt;

/// Why probes cannot be changed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No name of a probe: 1 to 64 letters, digits, and `_ . -`.
    Name,
    /// No names of events.
    Pattern,
    /// There is a probe of that name.
    Exists,
    /// There is no probe of that name.
    NoProbe,
    /// It is connected to these events, by that very pattern.
    Connected,
    /// It is not connected to events by that very pattern.
    NotConnected,
    /// There are 64 probes, or 256 connections.
    Full,
    /// There is no memory.
    Memory,
    /// This thread is in the middle of such a change.
    Busy,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "a probe's name has 1 to 64 letters, digits, and _ . -",
            Self::Pattern => "events are named by letters, digits, and _ . - : * ?",
            Self::Exists => "there is a probe of that name",
            Self::NoProbe => "there is no such probe",
            Self::Connected => "the probe is connected to these events",
            Self::NotConnected => "the probe is not connected to events by that name",
            Self::Full => "there is no room for another one",
            Self::Memory => "no memory",
            Self::Busy => "probes are being changed",
        })
    }
}

impl std::error::Error for Error {}
