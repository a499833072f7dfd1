//! All hosts of some traces.

use crate::duration::duration;
use crate::host::HostId;
use crate::trace::Trace;

/// A host, with the clock of its traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its id.
    pub id: HostId,
    /// Its name for people. Two hosts have different ones.
    pub name: String,
    /// Number of its traces.
    pub traces: usize,
    /// Largest error of its clock in ns, as far as its traces say it.
    pub precision: Option<u64>,
}

/// The hosts of some traces, in the order of their first traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The hosts.
    pub all: Vec<Host>,
    /// For each trace, the index of its host.
    pub of_trace: Vec<usize>,
}

impl Hosts {
    /// Groups traces by host.
    #[must_use]
    pub fn of(traces: &[Trace]) -> Self {
        let mut hosts = Self::default();
        for trace in traces {
            let metadata = trace.metadata();
            let id = HostId::of(metadata);
            let precision = metadata.clock().precision();
            let index = match hosts.all.iter().position(|host| host.id == id) {
                Some(index) => index,
                None => {
                    let name = match metadata.env_text("hostname") {
                        None | Some("") => "unnamed host",
                        Some(name) => name,
                    };
                    hosts.all.push(Host {
                        id,
                        name: name.to_owned(),
                        traces: 0,
                        precision: None,
                    });
                    hosts.all.len() - 1
                }
            };
            let host = &mut hosts.all[index];
            host.traces += 1;
            host.precision = host.precision.max(precision);
            hosts.of_trace.push(index);
        }
        hosts.tell_apart();
        hosts
    }

    /// Says how far the hosts' times are comparable. Empty if there is at most one host.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        if self.all.len() < 2 {
            return Vec::new();
        }
        let mut lines = vec![format!(
            "the traces of {} hosts are merged by the hosts' own clocks; --sync corrects these by messages",
            self.all.len()
        )];
        lines.extend(self.all.iter().map(|host| {
            let traces = match host.traces {
                1 => "1 trace".to_owned(),
                count => format!("{count} traces"),
            };
            let error = match host.precision {
                Some(ns) => format!("correct to ±{}, as its traces say", duration(ns)),
                None => "error unknown: it depends on how NTP kept it".to_owned(),
            };
            format!("host \"{}\": {traces}; clock {error}", host.name)
        }));
        lines
    }

    /// Appends the clock's id to names that several hosts have.
    fn tell_apart(&mut self) {
        let names: Vec<String> = self.all.iter().map(|host| host.name.clone()).collect();
        for host in &mut self.all {
            let is_ambiguous = names.iter().filter(|name| **name == host.name).count() > 1;
            if let (true, HostId::Clock(uid)) = (is_ambiguous, &host.id) {
                host.name = format!("{} (clock {uid})", host.name);
            }
        }
    }
}
