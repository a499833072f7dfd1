//! Selection and order of the visible rows.

use std::collections::BTreeMap;

use clap::ValueEnum;
use usertrace_cli::top::Row;

use crate::output;

/// Column that rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    Rate,
    Mean,
    Total,
    Lost,
    Bytes,
    Fill,
    Process,
    Pid,
    Event,
}

/// Settings of the display.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) by_process: bool,
    /// Only rows whose process, pid or event contains this text.
    pub(super) filter: String,
}

impl View {
    pub(super) fn rows(&self, rows: &[Row]) -> Vec<Row> {
        let mut rows: Vec<_> = match self.by_process {
            true => by_process(rows),
            false => rows.to_vec(),
        };
        if !self.filter.is_empty() {
            rows.retain(|row| {
                let event = row.event.as_deref().unwrap_or_default();
                let place = row.place.as_deref().unwrap_or_default();
                let text = format!("{} {} {event} {place}", row.process, row.pid);
                text.contains(&self.filter)
            });
        }
        rows.sort_by(|a, b| {
            let most = |of: fn(&Row) -> f64| of(b).total_cmp(&of(a));
            let order = match self.sort {
                Sort::Rate => most(|row| row.rate),
                Sort::Mean => most(|row| row.mean),
                Sort::Total => b.total.cmp(&a.total),
                Sort::Lost => most(|row| row.lost),
                Sort::Bytes => most(|row| row.bytes),
                Sort::Fill => most(|row| row.fill.unwrap_or(-1.0)),
                Sort::Process => a.process.cmp(&b.process),
                Sort::Pid => a.pid.cmp(&b.pid),
                Sort::Event => (&a.event, &a.place).cmp(&(&b.event, &b.place)),
            };
            let order = if self.reverse { order.reverse() } else { order };
            let name = |row: &Row| {
                let (event, place) = (row.event.clone(), row.place.clone());
                (row.source.clone(), row.pid, event, place)
            };
            order.then_with(|| name(a).cmp(&name(b)))
        });
        rows
    }
}

/// Sums rows to one for each process.
pub(super) fn by_process(rows: &[Row]) -> Vec<Row> {
    let mut processes: BTreeMap<(&str, u32), (Row, usize)> = BTreeMap::new();
    for row in rows {
        let count = usize::from(row.event.is_some());
        match processes.get_mut(&(row.source.as_str(), row.pid)) {
            None => {
                let sum = (row.clone(), count);
                processes.insert((&row.source, row.pid), sum);
            }
            Some((sum, events)) => {
                *events += count;
                sum.rate += row.rate;
                sum.mean += row.mean;
                sum.total += row.total;
                sum.bytes += row.bytes;
                sum.rate_is_estimate |= row.rate_is_estimate;
                sum.total_is_estimate |= row.total_is_estimate;
            }
        }
    }
    let name = |(row, events): (Row, usize)| Row {
        event: Some(output::count(events, "event", "events")),
        place: None,
        ..row
    };
    processes.into_values().map(name).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn row(pid: u32, event: &str, rate: f64) -> Row {
        Row {
            source: "t".into(),
            process: format!("p{pid}"),
            pid,
            event: Some(event.into()),
            place: None,
            rate,
            mean: 100.0 - rate,
            total: 10,
            bytes: 8.0 * rate,
            lost: f64::from(pid),
            lost_total: 0,
            fill: None,
            rate_is_estimate: false,
            total_is_estimate: false,
            ended: false,
        }
    }

    fn shown(view: &View) -> Vec<(u32, String)> {
        let rows = [row(1, "a:x", 5.0), row(2, "a:y", 7.0), row(1, "b:y", 1.0)];
        let rows = view.rows(&rows);
        rows.iter()
            .map(|row| (row.pid, row.event.clone().unwrap_or_default()))
            .collect()
    }

    #[test]
    fn rows_are_sorted_filtered_and_summed() {
        let mut view = View {
            sort: Sort::Rate,
            reverse: false,
            by_process: false,
            filter: String::new(),
        };
        let order = |view: &View| -> Vec<String> {
            shown(view).into_iter().map(|(_, event)| event).collect()
        };
        assert_eq!(order(&view), ["a:y", "a:x", "b:y"]);
        view.reverse = true;
        assert_eq!(order(&view), ["b:y", "a:x", "a:y"]);
        (view.sort, view.reverse) = (Sort::Mean, false);
        assert_eq!(order(&view), ["b:y", "a:x", "a:y"]);
        view.sort = Sort::Lost;
        assert_eq!(order(&view), ["a:y", "a:x", "b:y"]);
        view.sort = Sort::Event;
        assert_eq!(order(&view), ["a:x", "a:y", "b:y"]);
        view.filter = ":y".into();
        assert_eq!(order(&view), ["a:y", "b:y"]);
        view.filter = "p1 1".into();
        assert_eq!(order(&view), ["a:x", "b:y"]);
        (view.filter, view.by_process) = (String::new(), true);
        let expected = [(2, "1 event".to_owned()), (1, "2 events".to_owned())];
        assert_eq!(shown(&view), expected);
        let rows = [row(1, "a:x", 5.0), row(1, "b:y", 1.0)];
        assert_eq!(view.rows(&rows)[0].rate, 6.0);
    }
}
