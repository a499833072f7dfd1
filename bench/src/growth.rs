//! How costs grow with processors and processes: the contents of `docs/bench/growth.json`, and the
//! page made of it.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::curves::{Chart, curves};

/// One guest's results.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Growth {
    /// Processors of the guest.
    pub processors: usize,
    /// Instructions of an event into a ring of a concurrency id, after the first lap.
    pub event_by_cid: f64,
    /// The costs with each number of processes, from the fewest on.
    pub rows: Vec<GrowthRow>,
}

/// Costs while processes exist that have a buffer of the same trace. All but the last three are
/// instructions, of the program and the kernel together.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GrowthRow {
    /// Number of processes.
    pub processes: usize,
    /// An event of 32 bytes into a ring of a CPU, after the first lap.
    pub event: f64,
    /// The same in the first lap, in which the kernel allocates each page.
    pub event_fresh: f64,
    /// A first write to a page of a ring that is filled in order.
    pub fault: f64,
    /// `alloc_tracebuf` of a new process.
    pub alloc: f64,
    /// `ltt_update` that returns the buffer of a trace.
    pub update: f64,
    /// `ltt_update` for the next trace, where there is none.
    pub update_idle: f64,
    /// The `write()` that starts a trace, divided by the number of processes: it sends a signal to
    /// each.
    pub start: f64,
    /// The `write()` that stops it, divided by the number of processes.
    pub stop: f64,
    /// The part of a snapshot that depends on the number of rings: each process's consumer file is
    /// opened, and the positions of its rings are read; for each process.
    pub snapshot: f64,
    /// `rmdir` of the trace, with the events of all processes; for each process.
    pub destroy: f64,
    /// The end of a process that has areas and a buffer.
    pub exit: f64,
    /// Bytes that the kernel accounts to the trace, for each process: pages with events.
    pub memory: f64,
    /// Bytes by which the machine's free memory fell when the processes got their buffers, for each
    /// process.
    pub memory_taken: f64,
}

/// A curve: its title, unit and value.
type Curve = (&'static str, &'static str, fn(&GrowthRow) -> f64);

const CURVES: &[Curve] = &[
    ("event of 32 bytes", "instructions", |row| row.event),
    ("the same in the first lap", "instructions", |row| {
        row.event_fresh
    }),
    ("first write to a page", "instructions", |row| row.fault),
    ("`alloc_tracebuf`", "instructions", |row| row.alloc),
    ("`ltt_update`, a new buffer", "instructions", |row| {
        row.update
    }),
    ("`ltt_update`, nothing to do", "instructions", |row| {
        row.update_idle
    }),
    ("start of a trace", "instructions by process", |row| {
        row.start
    }),
    ("stop of a trace", "instructions by process", |row| row.stop),
    (
        "snapshot: positions of all rings",
        "instructions by process",
        |row| row.snapshot,
    ),
    ("`rmdir` of a trace", "instructions by process", |row| {
        row.destroy
    }),
    ("end of a process", "instructions", |row| row.exit),
    ("accounted memory", "bytes by process", |row| row.memory),
    ("memory taken", "bytes by process", |row| row.memory_taken),
];

/// `docs/bench/growth.svg`: a small chart for each cost, with a curve for each number of
/// processors.
#[must_use]
pub fn growth_picture(guests: &[Growth]) -> String {
    let charts: Vec<_> = CURVES
        .iter()
        .map(|(title, unit, value)| {
            let lines = guests.iter().map(|guest| {
                let points = guest
                    .rows
                    .iter()
                    .map(|row| (row.processes as f64, value(row)));
                (format!("{} CPU", guest.processors), points.collect())
            });
            Chart {
                title: title.replace('`', ""),
                unit,
                lines: lines.collect(),
            }
        })
        .collect();
    curves(
        "Costs by number of processes, on guests of 1, 16 and 64 processors",
        &charts,
    )
}

const BEGIN: &str = "<!-- growth: made by scripts/bench growth -->\n";
const END: &str = "<!-- growth -->\n";

/// `docs/bench/growth.md` with these results in its table. `None` if it has no place for it.
#[must_use]
pub fn growth_page(page: &str, guests: &[Growth]) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", table(guests)))
}

/// A row for each cost, and a column for each guest and number of processes.
fn table(guests: &[Growth]) -> String {
    let mut text = String::from("| cost |");
    let columns: Vec<_> = guests
        .iter()
        .flat_map(|guest| guest.rows.iter().map(move |row| (guest.processors, row)))
        .collect();
    for (processors, row) in &columns {
        let _ = write!(text, " {processors} CPU, {} |", row.processes);
    }
    text += "\n|---|";
    text += &"---|".repeat(columns.len());
    text.push('\n');
    for (title, unit, value) in CURVES {
        let _ = write!(text, "| {title} ({unit}) |");
        for (_, row) in &columns {
            let _ = write!(text, " {:.0} |", value(row));
        }
        text.push('\n');
    }
    text += "\n| |";
    for guest in guests {
        let _ = write!(text, " {} CPU |", guest.processors);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(guests.len()));
    text += "| event into a ring of a concurrency id (instructions) |";
    for guest in guests {
        let _ = write!(text, " {:.0} |", guest.event_by_cid);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results in which all costs of a number of processes are that number, or a tenth of it.
    fn guest(processors: usize) -> Growth {
        let row = |processes: usize| {
            let all = processes as f64;
            GrowthRow {
                processes,
                event: all / 10.0,
                event_fresh: all,
                fault: all,
                alloc: all,
                update: all,
                update_idle: all,
                start: all,
                stop: all,
                snapshot: all,
                destroy: all,
                exit: all,
                memory: all,
                memory_taken: all,
            }
        };
        Growth {
            processors,
            event_by_cid: 7.0,
            rows: vec![row(10), row(1000)],
        }
    }

    #[test]
    fn page_has_each_cost_of_each_guest() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let page = growth_page(&page, &[guest(1), guest(64)]).expect("a place");
        assert!(page.starts_with("before\n") && page.ends_with("after\n"));
        assert!(!page.contains("old"));
        assert!(page.contains("| event of 32 bytes (instructions) | 1 | 100 | 1 | 100 |\n"));
        assert!(page.contains("| 1 CPU, 10 | 1 CPU, 1000 | 64 CPU, 10 | 64 CPU, 1000 |\n"));
        assert_eq!(growth_page("no place", &[]), None);
    }

    #[test]
    fn picture_has_a_curve_for_each_guest_and_cost() {
        let picture = growth_picture(&[guest(1), guest(64)]);
        assert_eq!(picture.matches("<polyline ").count(), 2 * CURVES.len());
    }
}
