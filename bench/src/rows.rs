//! Rows of the results, from the times of contests.
//!
//! A contestant of several contests has one row, of all its batches. The machine may have been busy
//! during one contest only, and the noise is measured once, before all of them.

use crate::{Event, EventWriter, median, quantile, ratios};

/// Rows, in the order in which their contestants came first.
#[derive(Debug, Default)]
pub struct Rows(Vec<Row>);

/// A contestant: the writer, how it writes, the payload, and the number of threads.
type Name = (EventWriter, String, String, usize);

/// The batches of a contestant, in all contests.
#[derive(Debug)]
struct Row {
    name: Name,
    /// Nanoseconds of an event.
    ns: Vec<f64>,
    /// Ratios to the floor's batch of the same round.
    floors: Vec<f64>,
    /// Ratios to our batch of the same round.
    ours: Vec<f64>,
}

impl Rows {
    /// Adds the times of a contest, by contestant and round. The first contestant is the floor, the
    /// second ours.
    pub fn add(
        &mut self,
        names: Vec<(EventWriter, String)>,
        payload: &str,
        threads: usize,
        times: &[Vec<f64>],
    ) {
        for ((who, how), ns) in names.into_iter().zip(times) {
            let row = self.of((who, how, payload.into(), threads));
            row.ns.extend(ns);
            row.floors.extend(ratios(ns, &times[0]));
            row.ours.extend(ratios(ns, &times[1]));
        }
    }

    fn of(&mut self, name: Name) -> &mut Row {
        let known = self.0.iter().position(|row| row.name == name);
        let at = known.unwrap_or_else(|| {
            self.0.push(Row {
                name,
                ns: Vec::new(),
                floors: Vec::new(),
                ours: Vec::new(),
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// The medians of each row.
    #[must_use]
    pub fn into_events(self) -> Vec<Event> {
        let event = |row: Row| {
            let (who, how, payload, threads) = row.name;
            Event {
                who,
                how,
                payload,
                threads,
                ns: median(&row.ns),
                quartiles: [0.25, 0.75].map(|part| quantile(&row.ns, part)),
                floors: median(&row.floors),
                ours: median(&row.ours),
            }
        };
        self.0.into_iter().map(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One contest on a busy machine does not decide a row that two others have, too.
    #[test]
    fn contests_with_the_same_contestants_share_rows() {
        let mut rows = Rows::default();
        for (other, [floor, ours, theirs]) in [
            ("a", [10.0, 18.0, 130.0]),
            ("b", [10.0, 11.0, 90.0]),
            ("c", [10.0, 11.0, 88.0]),
        ] {
            let names = vec![
                (EventWriter::Floor, String::new()),
                (EventWriter::Usertrace, "ring".into()),
                (EventWriter::Lttng, other.into()),
            ];
            let times = [floor, ours, theirs].map(|ns| vec![ns; 3]);
            rows.add(names.clone(), "4 bytes", 1, &times);
            let others = [floor, 2.0 * ours, theirs].map(|ns| vec![ns; 3]);
            rows.add(names, "4 bytes", 2, &others);
        }
        let events = rows.into_events();
        let found: Vec<_> = (events.iter())
            .filter(|event| event.threads == 1)
            .map(|event| (event.how.as_str(), event.ns, event.floors, event.ours))
            .collect();
        assert_eq!(
            found,
            [
                ("", 10.0, 1.0, 10.0 / 11.0),
                ("ring", 11.0, 1.1, 1.0),
                ("a", 130.0, 13.0, 130.0 / 18.0),
                ("b", 90.0, 9.0, 90.0 / 11.0),
                ("c", 88.0, 8.8, 8.0),
            ]
        );
        assert_eq!(events[1].quartiles, [11.0, 18.0]);
        assert_eq!(events.len(), 10);
    }
}
