//! All hosts of some traces.

use std::collections::HashMap;

use crate::duration::duration;
use crate::host::HostId;
use crate::trace::Trace;

/// A host, with the clock of its traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its ids: two if some of its traces do not have the clock's id.
    pub ids: Vec<HostId>,
    /// Its name for people.
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
        let clocks = clocks_by_name(traces);
        let mut known: HashMap<HostId, usize> = HashMap::new();
        for trace in traces {
            let metadata = trace.metadata();
            let id = HostId::of(metadata);
            let name = metadata.env_text("hostname").unwrap_or_default();
            let same = match (&id, clocks.get(name)) {
                (HostId::Name(_), Some(Some(clock))) => HostId::Clock((*clock).to_owned()),
                _ => id.clone(),
            };
            let index = *known.entry(same).or_insert(hosts.all.len());
            if index == hosts.all.len() {
                hosts.all.push(Host {
                    ids: Vec::new(),
                    name: match name {
                        "" => "unnamed host".to_owned(),
                        name => name.to_owned(),
                    },
                    traces: 0,
                    precision: None,
                });
            }
            let host = &mut hosts.all[index];
            if !host.ids.contains(&id) {
                host.ids.push(id);
            }
            host.traces += 1;
            host.precision = host.precision.max(metadata.clock().precision());
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

    /// Appends what differs to names that several hosts have.
    fn tell_apart(&mut self) {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for host in &self.all {
            *counts.entry(host.name.clone()).or_default() += 1;
        }
        for host in self.all.iter_mut().filter(|host| counts[&host.name] > 1) {
            host.name = match host.ids.first() {
                Some(HostId::Clock(uid)) => format!("{} (clock {uid})", host.name),
                Some(HostId::Dump(_)) => format!("{} (dump)", host.name),
                _ => continue,
            };
        }
    }
}

/// The id of the only clock of each host name. None if there are several.
fn clocks_by_name(traces: &[Trace]) -> HashMap<&str, Option<&str>> {
    let mut clocks: HashMap<&str, Option<&str>> = HashMap::new();
    for metadata in traces.iter().map(Trace::metadata) {
        let name = metadata.env_text("hostname").unwrap_or_default();
        if let Some(uid) = metadata.clock_uid() {
            let known = clocks.entry(name).or_insert(Some(uid));
            *known = known.filter(|known| *known == uid);
        }
    }
    clocks
}
