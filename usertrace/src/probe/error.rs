//! Errors of changes of probes.

use std::fmt;

/// Errors of changes of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The name is not 1 to 64 letters, digits, and `_ . -`.
    Name,
    /// The pattern of events is invalid.
    Pattern,
    /// A probe of that name exists already.
    Exists,
    /// No probe has that name.
    NoProbe,
    /// The probe is already connected by that pattern.
    Connected,
    /// The probe is not connected by that pattern.
    NotConnected,
    /// The process already has 64 probes, or 256 connections.
    Full,
    /// No memory.
    Memory,
    /// This thread is already changing probes.
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
