//! Computes rates and means from counts.

use std::collections::HashMap;
use std::time::Instant;

use serde::Serialize;

use super::{Amount, Counted};

/// One event of one process in an interval, or all events of one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The trace, or the directory of the recording.
    pub source: String,
    /// Name of the process.
    pub process: String,
    /// Its id.
    pub pid: u32,
    /// `PROVIDER:NAME`; none if the process has written no event.
    pub event: Option<String>,
    /// The function that the event is from, with its file and line, if places are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Events in a second, in this interval.
    pub rate: f64,
    /// Events in a second, since the process was first seen.
    pub mean: f64,
    /// Events since the process was first seen.
    pub total: u64,
    /// Bytes in a second.
    pub bytes: f64,
    /// Events that the whole process lost in a second.
    pub lost: f64,
    /// Events that the whole process lost since it was first seen.
    pub lost_total: u64,
    /// Fill level of the process's fullest ring, in percent.
    pub fill: Option<f64>,
    /// Not all events were seen in this interval: `rate` and `bytes` are estimates.
    pub rate_is_estimate: bool,
    /// Not all events were seen: `mean` and `total` are estimates.
    pub total_is_estimate: bool,
    /// The process has ended, or will write no more.
    pub ended: bool,
}

/// Earlier counts of a process.
#[derive(Debug)]
struct Before {
    since: Instant,
    lost: u64,
    /// Losses before the process was first seen.
    lost_base: u64,
    /// By name and place.
    events: HashMap<(String, Option<String>), Last>,
}

/// Earlier counts of an event.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    events: Amount,
    bytes: Amount,
    /// Events before the process was first seen, which do not count for the mean.
    base: Amount,
}

/// Computes rates from successive counts.
#[derive(Debug)]
pub struct Rates {
    last: Instant,
    processes: HashMap<String, Before>,
}

impl Rates {
    /// Starts without earlier counts.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            last: now,
            processes: HashMap::new(),
        }
    }

    /// Returns rows of all processes: one for each event, or one without an event.
    pub fn update(&mut self, now: Instant, counted: &[Counted]) -> Vec<Row> {
        let begin = std::mem::replace(&mut self.last, now);
        let seconds = (now - begin).as_secs_f64();
        let mut rows = Vec::new();
        let mut processes = HashMap::new();
        for counted in counted {
            // Processes missing from `counted` are forgotten.
            let before = self.processes.remove(&counted.key);
            let mut before = before.unwrap_or_else(|| Before {
                since: begin,
                lost: 0,
                lost_base: 0,
                events: HashMap::new(),
            });
            before.rows(now, seconds, counted, &mut rows);
            processes.insert(counted.key.clone(), before);
        }
        self.processes = processes;
        rows
    }
}

/// `n` events in `seconds`, as a rate.
fn per(seconds: f64, n: f64) -> f64 {
    if seconds > 0.0 { n / seconds } else { 0.0 }
}

impl Before {
    fn rows(&mut self, now: Instant, seconds: f64, counted: &Counted, rows: &mut Vec<Row>) {
        if counted.backlog {
            // Rates and means begin with the backlog.
            (self.since, self.lost, self.lost_base) = (now, counted.lost, counted.lost);
        }
        let age = (now - self.since).as_secs_f64();
        let lost = counted.lost.saturating_sub(self.lost);
        self.lost = counted.lost;
        let nothing = Row {
            source: counted.source.clone(),
            process: counted.comm.clone(),
            pid: counted.pid,
            event: None,
            place: None,
            rate: 0.0,
            mean: 0.0,
            total: 0,
            bytes: 0.0,
            lost: per(seconds, lost as f64),
            lost_total: counted.lost.saturating_sub(self.lost_base),
            fill: counted.fill.map(|fill| fill as f64 / 10.0),
            rate_is_estimate: false,
            total_is_estimate: false,
            ended: counted.ended,
        };
        for event in &counted.events {
            let key = (event.name.clone(), event.place.clone());
            let last = self.events.entry(key).or_default();
            if counted.backlog {
                (last.events, last.bytes, last.base) = (event.events, event.bytes, event.events);
            }
            let new = event.events.all() - last.events.all();
            let bytes = event.bytes.all() - last.bytes.all();
            rows.push(Row {
                event: Some(event.name.clone()),
                place: event.place.clone(),
                rate: per(seconds, new),
                mean: per(age, event.events.all() - last.base.all()),
                total: event.events.all().round() as u64,
                bytes: per(seconds, bytes),
                rate_is_estimate: event.events.estimated > last.events.estimated,
                total_is_estimate: event.events.estimated > 0.0,
                ..nothing.clone()
            });
            (last.events, last.bytes) = (event.events, event.bytes);
        }
        if counted.events.is_empty() {
            rows.push(nothing);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::CountedEvent;
    use super::*;

    fn counted(events: u64, estimated: f64, lost: u64) -> Counted {
        let amount = |seen| Amount { seen, estimated };
        Counted {
            key: "t/1.2".into(),
            pid: 1,
            events: vec![CountedEvent {
                place: None,
                name: "a:b".into(),
                events: amount(events),
                bytes: amount(events * 16),
            }],
            lost,
            fill: Some(125),
            ..Counted::default()
        }
    }

    #[test]
    fn rates_cover_the_interval_and_means_all_time() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut rates = Rates::new(begin);
        let rows = rates.update(at(2), &[counted(100, 0.0, 4)]);
        let row = &rows[0];
        assert_eq!((row.rate, row.mean, row.total), (50.0, 50.0, 100));
        assert_eq!((row.lost, row.lost_total, row.bytes), (2.0, 4, 800.0));
        assert_eq!((row.fill, row.rate_is_estimate), (Some(12.5), false));
        let rows = rates.update(at(4), &[counted(100, 20.0, 4)]);
        let row = &rows[0];
        assert_eq!((row.rate, row.mean, row.total), (10.0, 30.0, 120));
        assert!(row.rate_is_estimate && row.total_is_estimate);
        // New exact counts add to earlier estimates.
        let rows = rates.update(at(5), &[counted(130, 20.0, 4)]);
        let row = &rows[0];
        assert_eq!((row.rate, row.mean, row.lost), (30.0, 30.0, 0.0));
        assert!(!row.rate_is_estimate && row.total_is_estimate);
        // A process that was missing once is a new one.
        assert!(rates.update(at(6), &[]).is_empty());
        let row = &rates.update(at(7), &[counted(10, 0.0, 0)])[0];
        assert_eq!((row.rate, row.mean), (10.0, 10.0));
    }

    #[test]
    fn backlog_makes_no_rate() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut rates = Rates::new(begin);
        let backlog = |n| Counted {
            backlog: true,
            ..counted(n, 0.0, n)
        };
        for n in [100, 200] {
            let row = &rates.update(at(n / 100), &[backlog(n)])[0];
            assert_eq!((row.rate, row.mean, row.total), (0.0, 0.0, n));
            assert_eq!((row.lost, row.lost_total), (0.0, 0));
        }
        let row = &rates.update(at(4), &[counted(206, 0.0, 202)])[0];
        assert_eq!((row.rate, row.mean, row.total), (3.0, 3.0, 206));
        assert_eq!((row.lost, row.lost_total), (1.0, 2));
    }

    #[test]
    fn process_without_events_has_a_row() {
        let mut rates = Rates::new(Instant::now());
        let process = Counted {
            pid: 7,
            ..Counted::default()
        };
        let rows = rates.update(Instant::now(), &[process]);
        assert_eq!((rows.len(), rows[0].pid, &rows[0].event), (1, 7, &None));
    }
}
