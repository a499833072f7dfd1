//! Versions of CTF.

use std::str::FromStr;

use usertrace_ring::schema::Event;

use crate::description::{Class, Value};
use crate::{Clock, json, tsdl};

/// Start of each declaration in CTF 2. CTF 1.8 has no such byte.
pub const RECORD_SEPARATOR: u8 = 0x1e;

/// A version of CTF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// CTF 1.8, which all readers know.
    #[default]
    V1_8,
    /// CTF 2, for `babeltrace2` 2.1 and later.
    V2,
}

/// Error for a version other than `1.8` and `2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither 1.8 nor 2")]
pub struct UnknownVersion;

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "1.8" => Ok(Self::V1_8),
            "2" => Ok(Self::V2),
            _ => Err(UnknownVersion),
        }
    }
}

impl Version {
    pub(super) fn preamble(
        self,
        uuid: &[u8; 16],
        environment: Vec<(&str, Value)>,
        clock: &Clock,
    ) -> String {
        match self {
            Self::V1_8 => tsdl::preamble(uuid, environment, clock),
            Self::V2 => json::preamble(uuid, environment, clock),
        }
    }

    pub(super) fn class(self, class: &Class) -> String {
        match self {
            Self::V1_8 => tsdl::class(class),
            Self::V2 => json::class(class),
        }
    }

    pub(super) fn event(self, event: &Event, class: &Class) -> String {
        match self {
            Self::V1_8 => tsdl::event(event, class),
            Self::V2 => json::event(event, class),
        }
    }
}
