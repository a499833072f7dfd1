//! The host that a trace is from, and the correction of its clock.

use std::collections::HashMap;

use crate::correction::Correction;
use crate::metadata::Metadata;

/// Identifies the clock of a host. All traces of a clock share one correction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostId {
    /// The clock's unique id: it differs after each boot.
    Clock(String),
    /// The host name, if the clock has no id. Empty if the trace does not say it either.
    Name(String),
    /// The host name, of a trace out of a dump: it may be of another boot than other traces.
    Dump(String),
}

impl HostId {
    /// The host of a trace.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let name = || metadata.env_text("hostname").unwrap_or_default().to_owned();
        match metadata.clock_uid() {
            Some(uid) => Self::Clock(uid.to_owned()),
            None if metadata.env_text("origin") == Some("dump") => Self::Dump(name()),
            None => Self::Name(name()),
        }
    }
}

/// Corrections by host. Hosts without one keep their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrections {
    of_host: HashMap<HostId, Correction>,
}

impl Corrections {
    /// The correction of a host, if it has one.
    #[must_use]
    pub fn get(&self, host: &HostId) -> Option<Correction> {
        self.of_host.get(host).copied()
    }

    /// Sets the correction of a host.
    pub fn insert(&mut self, host: HostId, correction: Correction) {
        self.of_host.insert(host, correction);
    }
}
