//! Formats rows, for files and for the terminal.

use std::path::Path;

use usertrace_cli::top::Row;

use super::view::by_process;
use crate::output;

/// Sums over all rows, as parts of one line.
pub(super) fn sums(rows: &[Row], number: fn(f64) -> String) -> [String; 4] {
    let processes = by_process(rows);
    // (`sum` of no rows would be -0.)
    let sum = |of: fn(&Row) -> f64| number(processes.iter().map(of).fold(0.0, |a, b| a + b));
    let is_estimate = processes.iter().any(|row| row.rate_is_estimate);
    [
        output::count(processes.len(), "process", "processes"),
        mark_estimate(is_estimate, sum(|row| row.rate)) + " events/s",
        sum(|row| row.lost) + " lost/s",
        mark_estimate(is_estimate, sum(|row| row.bytes)) + " bytes/s",
    ]
}

/// Joins as many parts as fit the width, at least one.
pub(super) fn fitting(parts: &[String], separator: &str, width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let longer = match line.is_empty() {
            true => part.clone(),
            false => format!("{line}{separator}{part}"),
        };
        if longer.chars().count() > width && !line.is_empty() {
            break;
        }
        line = longer;
    }
    line
}

/// Formats a number without a fraction.
pub(super) fn whole(n: f64) -> String {
    format!("{n:.0}")
}

/// Formats a number in at most six characters.
pub(super) fn short(n: f64) -> String {
    if n < 10.0 && n.fract() != 0.0 {
        return format!("{n:.1}");
    }
    if n < 99_999.5 {
        return format!("{n:.0}");
    }
    let mut n = n / 1000.0;
    for unit in ["k", "M", "G"] {
        if n < 9999.5 {
            let digits = usize::from(n < 999.95);
            return format!("{n:.digits$}{unit}");
        }
        n /= 1000.0;
    }
    format!("{n:.0}T")
}

/// Marks an estimate with `~`.
fn mark_estimate(is_estimate: bool, text: String) -> String {
    if is_estimate {
        format!("~{text}")
    } else {
        text
    }
}

/// Formats a process's name, with a note if it has ended.
fn process(row: &Row) -> String {
    let name = row.process.escape_debug();
    if row.ended {
        format!("{name}, ended")
    } else {
        name.to_string()
    }
}

/// Whether rows of more than one trace need to show their source.
pub(super) fn has_several_traces(rows: &[Row]) -> bool {
    let mut traces = rows.iter().map(|row| &row.source);
    // Each process of a recording has a source of its own, which is a path.
    let first = traces.next();
    let is_path = |source: &String| Path::new(source).components().count() > 1;
    traces.any(|source| Some(source) != first && !is_path(source))
}

pub(super) fn event(row: &Row) -> String {
    let event = row.event.as_deref().unwrap_or("-");
    match &row.place {
        Some(place) => format!("{event} {place}"),
        None => event.to_owned(),
    }
}

fn fill(row: &Row) -> String {
    row.fill
        .map_or_else(|| "-".to_owned(), |fill| format!("{fill:.0}%"))
}

/// Formats all rows as a table, for files.
pub(super) fn table(rows: &[Row]) -> String {
    let several = has_several_traces(rows);
    let mut cells = vec![
        [
            "PID", "EVENTS/S", "MEAN", "TOTAL", "LOST/S", "BYTES/S", "FILL", "PROCESS", "EVENT",
        ]
        .map(str::to_owned),
    ];
    cells.extend(rows.iter().map(|row| {
        let process = match several {
            true => format!("{}:{}", row.source, process(row)),
            false => process(row),
        };
        [
            row.pid.to_string(),
            mark_estimate(row.rate_is_estimate, whole(row.rate)),
            mark_estimate(row.total_is_estimate, whole(row.mean)),
            mark_estimate(row.total_is_estimate, row.total.to_string()),
            whole(row.lost),
            mark_estimate(row.rate_is_estimate, whole(row.bytes)),
            fill(row),
            process,
            event(row),
        ]
    }));
    output::table(&cells)
}

/// A column of the terminal.
pub(super) struct Column {
    pub(super) title: &'static str,
    width: usize,
    is_text: bool,
    pub(super) cell: fn(&Row) -> String,
}

const fn number(title: &'static str, width: usize, cell: fn(&Row) -> String) -> Column {
    Column {
        title,
        width,
        is_text: false,
        cell,
    }
}

const fn text(title: &'static str, width: usize, cell: fn(&Row) -> String) -> Column {
    Column {
        title,
        width,
        is_text: true,
        cell,
    }
}

/// All columns, in display order.
const COLUMNS: [Column; 9] = [
    number("PID", 7, |row| row.pid.to_string()),
    number("EVENTS/S", 8, |row| {
        mark_estimate(row.rate_is_estimate, short(row.rate))
    }),
    number("MEAN", 7, |row| {
        mark_estimate(row.total_is_estimate, short(row.mean))
    }),
    number("TOTAL", 7, |row| {
        mark_estimate(row.total_is_estimate, short(row.total as f64))
    }),
    number("LOST/S", 6, |row| short(row.lost)),
    number("BYTES/S", 7, |row| {
        mark_estimate(row.rate_is_estimate, short(row.bytes))
    }),
    number("FILL", 4, fill),
    text("PROCESS", 9, process),
    text("EVENT", 12, event),
];

/// Order in which a narrow terminal loses columns.
const DROP_ORDER: [&str; 7] = [
    "MEAN", "BYTES/S", "FILL", "TOTAL", "PROCESS", "LOST/S", "PID",
];

/// The columns that fit, with their widths.
pub(super) fn columns(width: usize) -> Vec<(&'static Column, usize)> {
    let mut columns: Vec<_> = COLUMNS.iter().collect();
    let needed = |columns: &[&Column]| {
        let widths = columns.iter().map(|column| column.width + 1);
        widths.sum::<usize>() - 1
    };
    for title in DROP_ORDER {
        if needed(&columns) <= width {
            break;
        }
        columns.retain(|column| column.title != title);
    }
    // The rest of the width is for names: at most 6 columns for processes, the others for events.
    let left = width.saturating_sub(needed(&columns));
    let process = left.min(30) / 5;
    let has_process = columns.iter().any(|column| column.title == "PROCESS");
    let more = |title: &str| match title {
        "PROCESS" => process,
        "EVENT" if has_process => left - process,
        "EVENT" => left,
        _ => 0,
    };
    let with = |column: &'static Column| (column, column.width + more(column.title));
    columns.into_iter().map(with).collect()
}

/// Formats a line of cells.
pub(super) fn line(columns: &[(&Column, usize)], cell: impl Fn(&Column) -> String) -> String {
    let cells = columns.iter().map(|(column, width)| {
        let width = *width;
        let text = cut(&cell(column), width);
        match column.is_text {
            true => format!("{text:width$}"),
            false => format!("{text:>width$}"),
        }
    });
    let line = cells.collect::<Vec<_>>().join(" ");
    line.trim_end().to_owned()
}

/// Cuts a text to `width` characters, with an ellipsis.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let begin: String = text.chars().take(width.saturating_sub(1)).collect();
    match width {
        0 => String::new(),
        _ => begin + "\u{2026}",
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::row;
    use super::*;

    #[test]
    fn numbers_fit_into_their_columns() {
        for (n, text) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (9.96, "10.0"),
            (99_999.0, "99999"),
            (100_000.0, "100.0k"),
            (999_960.0, "1000k"),
            (12_345_678.0, "12.3M"),
            (9_999_600_000.0, "10.0G"),
            (1e15, "1000T"),
        ] {
            assert_eq!(short(n), text);
            assert!(text.len() <= 6);
        }
    }

    #[test]
    fn lines_fit_the_terminal() {
        for width in 1..200 {
            let columns = columns(width);
            let row = row(4_194_304, "provider:with_a_long_name_of_an_event", 1e6);
            let text = line(&columns, |column| (column.cell)(&row));
            assert!(cut(&text, width).chars().count() <= width);
            if width >= 21 {
                assert!(text.chars().count() <= width, "{width}: {text}");
            }
            // However narrow, rate and event are visible.
            let titles: Vec<_> = columns.iter().map(|(column, _)| column.title).collect();
            assert!(titles.contains(&"EVENTS/S") && titles.contains(&"EVENT"));
        }
        assert_eq!(columns(200).len(), COLUMNS.len());
    }
}
