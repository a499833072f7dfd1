//! Dates.

const NS_PER_DAY: i64 = 86_400_000_000_000;

/// The day of a time in ns since 1970: days since then, in UTC.
pub(crate) fn day(ns: i64) -> i64 {
    ns.div_euclid(NS_PER_DAY)
}

/// Formats a day as `YYYY-MM-DD`.
pub(crate) fn date(day: i64) -> String {
    // Years that begin in March, in eras of 400 years (Howard Hinnant, "chrono-compatible low-level
    // date algorithms").
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = year + era * 400 + carry;
    format!("{year:04}-{month:02}-{of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (ns, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (NS_PER_DAY - 1, "1970-01-01"),
            (1_709_164_800_000_000_000, "2024-02-29"),
            (1_709_251_200_000_000_000, "2024-03-01"),
            (1_795_773_540_000_000_000, "2026-11-27"),
            (i64::MIN, "1677-09-21"),
            (i64::MAX, "2262-04-11"),
        ] {
            assert_eq!(date(day(ns)), expected);
        }
        // Each day of four centuries comes after the one before.
        let dates: Vec<_> = (0..146_097).map(date).collect();
        assert!(dates.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(date(146_097), "2370-01-01");
    }
}
