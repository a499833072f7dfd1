//! Durations in words.

/// A time in words, with about four digits.
#[must_use]
pub fn duration(ns: u64) -> String {
    let (unit, size) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => ("µs", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let number = ns as f64 / size;
    let decimals = match number {
        ..10.0 => 3,
        ..100.0 => 2,
        ..1000.0 => 1,
        _ => 0,
    };
    format!("{number:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_four_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.000 µs"),
            (41_230, "41.23 µs"),
            (999_949, "999.9 µs"),
            (5_000_000, "5.000 ms"),
            (12_345_678_901, "12.35 s"),
            (86_400_000_000_000, "86400 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
