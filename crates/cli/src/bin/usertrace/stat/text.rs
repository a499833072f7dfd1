//! Formats counters as a table, and their values as histograms.

use usertrace_reader::Counter;

/// Width of a histogram's bars that is used at most.
const MAX_BAR: usize = 52;
/// Width of the ranges of values: `[512K, 1M)`.
const RANGE: usize = 14;

/// Title of a column, whether a counter uses it, and its cells.
type Column = (&'static str, bool, fn(&Counter) -> String);

/// A table of counters. Columns that no counter uses are left out.
pub(super) fn table(counters: &[&Counter]) -> String {
    let has_keys = counters.iter().any(|counter| !counter.key_name.is_empty());
    let has_values = counters
        .iter()
        .any(|counter| !counter.value_name.is_empty());
    let columns: [Column; 8] = [
        ("EVENT", true, name),
        ("KEY", has_keys, key),
        ("VALUE", has_values, |of| or_dash(&of.value_name)),
        ("COUNT", true, |of| of.count.to_string()),
        ("SUM", has_values, |of| if_any(of, |of| of.sum.to_string())),
        ("MEAN", has_values, |of| {
            let mean = of.mean().map(|mean| format!("{mean:.1}"));
            mean.unwrap_or_else(dash)
        }),
        ("MIN", has_values, |of| if_any(of, |of| of.min.to_string())),
        ("MAX", has_values, |of| if_any(of, |of| of.max.to_string())),
    ];
    let columns = columns.into_iter().filter(|(_, is_used, _)| *is_used);
    let columns: Vec<Vec<String>> = columns
        .map(|(title, _, cell)| {
            let cells = counters.iter().map(|counter| cell(counter));
            std::iter::once(title.to_owned()).chain(cells).collect()
        })
        .collect();
    let mut text = String::new();
    for row in 0..=counters.len() {
        let mut line = String::new();
        for column in &columns {
            let width = column.iter().map(|cell| cell.chars().count()).max();
            let width = width.unwrap_or(0);
            let cell = &column[row];
            let is_text = ["EVENT", "KEY", "VALUE"].contains(&&*column[0]);
            match is_text {
                true => line.push_str(&format!("{cell:width$}  ")),
                false => line.push_str(&format!("{cell:>width$}  ")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn dash() -> String {
    "-".to_owned()
}

fn or_dash(text: &str) -> String {
    match text {
        "" => dash(),
        text => text.escape_debug().to_string(),
    }
}

fn if_any(counter: &Counter, format: fn(&Counter) -> String) -> String {
    match counter.values {
        0 => dash(),
        _ => format(counter),
    }
}

/// Name of the event.
fn name(counter: &Counter) -> String {
    match counter.is_overflow() {
        true => "(no room in the table)".to_owned(),
        false => counter.event.escape_debug().to_string(),
    }
}

/// Name and value of the key.
fn key(counter: &Counter) -> String {
    match (&*counter.key_name, &*counter.key) {
        ("", _) | (_, "") => dash(),
        (name, key) => format!("{name}={}", key.escape_debug()),
    }
}

/// The title of a counter's histogram.
pub(super) fn title(counter: &Counter) -> String {
    let by = match &*counter.key_name {
        "" => String::new(),
        _ => format!(" {}", key(counter)),
    };
    format!("{} {}{by}:", name(counter), or_dash(&counter.value_name))
}

/// The histogram of a counter's values, with bars that fit into `width` columns.
pub(super) fn histogram(counter: &Counter, width: usize) -> String {
    let used = |bucket: &u64| *bucket > 0;
    let Some(first) = counter.histogram.iter().position(used) else {
        return String::new();
    };
    let buckets = counter.histogram.iter().enumerate().skip(first);
    let most = counter.histogram.iter().max().copied().unwrap_or(1).max(1);
    let number = most.to_string().len();
    let bar = width.saturating_sub(RANGE + number + 4).clamp(1, MAX_BAR);
    let mut text = String::new();
    for (n, &count) in buckets {
        let len = (u128::from(count) * bar as u128 / u128::from(most)) as usize;
        // A value is never invisible.
        let len = len.max(usize::from(count > 0));
        let bars = "@".repeat(len);
        let range = range(n);
        text.push_str(&format!("{range:<RANGE$} {count:>number$} |{bars:bar$}|\n"));
    }
    text
}

/// The range of values in a bucket.
fn range(bucket: usize) -> String {
    match bucket {
        0 => "(..., 0]".to_owned(),
        1 => "[1]".to_owned(),
        63 => format!("[{}, ...)", power(62)),
        _ => format!("[{}, {})", power(bucket - 1), power(bucket)),
    }
}

/// A power of two, in units of 1024.
fn power(exponent: usize) -> String {
    let unit = ["", "K", "M", "G", "T", "P", "E"][exponent / 10];
    format!("{}{unit}", 1 << (exponent % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> Counter {
        let mut histogram = vec![0; 12];
        (histogram[0], histogram[1], histogram[11]) = (1, 300, 600);
        Counter {
            event: "libc:malloc".into(),
            value_name: "size".into(),
            count: 901,
            values: 901,
            sum: 1802,
            min: -3,
            max: 2047,
            histogram,
            ..Counter::default()
        }
    }

    #[test]
    fn tables_leave_out_unused_columns() {
        let plain = Counter {
            event: "a:b".into(),
            count: 7,
            ..Counter::default()
        };
        assert_eq!(table(&[&plain]), "EVENT  COUNT\na:b        7\n");
        let text = table(&[&counter(), &plain]);
        let expected = "EVENT        VALUE  COUNT   SUM  MEAN  MIN   MAX\n\
                        libc:malloc  size     901  1802   2.0   -3  2047\n\
                        a:b          -          7     -     -    -     -\n";
        assert_eq!(text, expected);
        let keyed = Counter {
            key_name: "path".into(),
            key: "/a\x1b".into(),
            ..plain
        };
        assert_eq!(
            table(&[&keyed]),
            "EVENT  KEY            COUNT\na:b    path=/a\\u{1b}      7\n"
        );
    }

    #[test]
    fn bars_fit_the_width() {
        for width in [0, 20, 40, 80, 200] {
            let text = histogram(&counter(), width);
            assert_eq!(text.lines().count(), 12);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest.unwrap() <= width.max(RANGE + 8), "{text}");
            let bars: Vec<_> = text.lines().map(|line| line.matches('@').count()).collect();
            assert!(bars[0] >= 1 && bars[2] == 0 && bars[11] >= bars[1] && bars[1] >= 1);
        }
        let text = histogram(&counter(), 80);
        assert!(text.contains("\n[1]            300 |@@@@"), "{text}");
        assert!(text.contains("\n[1K, 2K)       600 |@@@@"), "{text}");
        assert_eq!(histogram(&Counter::default(), 80), "");
    }

    #[test]
    fn ranges_name_powers_of_two() {
        let names = [0, 1, 2, 10, 11, 20, 62, 63].map(range);
        let expected = [
            "(..., 0]",
            "[1]",
            "[2, 4)",
            "[512, 1K)",
            "[1K, 2K)",
            "[512K, 1M)",
            "[2E, 4E)",
            "[4E, ...)",
        ];
        assert_eq!(names, expected);
    }
}
