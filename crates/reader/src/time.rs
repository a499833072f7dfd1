//! Times in command line arguments.

use std::str::FromStr;

const NS: i64 = 1_000_000_000;
/// Longest trace, in days, whose days are all tried.
const MAX_DAYS: i64 = 4000;

/// A time of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Nanoseconds since 1970.
    At(i64),
    /// A time of any day.
    OfDay {
        /// 0 to 23.
        hour: i32,
        /// 0 to 59.
        minute: i32,
        /// 0 to 60.
        second: i32,
        /// Nanoseconds, below 10^9.
        ns: i64,
    },
}

impl Time {
    /// Resolves to ns since 1970, for a trace with this begin and end. A time of day is the first
    /// one in the trace, or else that on its first day.
    #[must_use]
    pub fn within(self, (begin, end): (i64, i64)) -> i64 {
        let (hour, minute, second, ns) = match self {
            Self::At(ns) => return ns,
            Self::OfDay {
                hour,
                minute,
                second,
                ns,
            } => (hour, minute, second, ns),
        };
        let first = local(begin.div_euclid(NS));
        let on_day = |day: i64| {
            let mut time = first;
            (time.tm_hour, time.tm_min, time.tm_sec) = (hour, minute, second);
            time.tm_mday += day as i32;
            seconds(time).saturating_mul(NS).saturating_add(ns)
        };
        let mut days = (0..MAX_DAYS).map(on_day).take_while(|&time| time <= end);
        days.find(|&time| time >= begin)
            .unwrap_or_else(|| on_day(0))
    }
}

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or("neither HH:MM:SS, nor YYYY-MM-DD HH:MM:SS, nor seconds since 1970")
    }
}

fn parse(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let ns = number(&format!("{fraction:0<9}"))?;
    let mut parts = whole.split([' ', 'T']);
    let (first, second) = (parts.next()?, parts.next());
    if parts.next().is_some() {
        return None;
    }
    if !whole.contains(':') {
        let seconds = second.is_none().then(|| number(first))?;
        return Some(Time::At(seconds?.checked_mul(NS)?.checked_add(ns)?));
    }
    let (date, time) = match second {
        Some(time) => (Some(first), time),
        None => (None, first),
    };
    let [hour, minute, second] = three(time, ':')?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let Some(date) = date else {
        return Some(Time::OfDay {
            hour,
            minute,
            second,
            ns,
        });
    };
    let [year, month, day] = three(date, '-')?;
    if !(1970..=2262).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut time = local(0);
    (time.tm_year, time.tm_mon, time.tm_mday) = (year - 1900, month - 1, day);
    (time.tm_hour, time.tm_min, time.tm_sec) = (hour, minute, second);
    Some(Time::At(seconds(time).checked_mul(NS)?.checked_add(ns)?))
}

/// Parses digits, without a sign.
fn number(text: &str) -> Option<i64> {
    let is_valid = text.bytes().all(|b| b.is_ascii_digit());
    is_valid.then(|| text.parse().ok())?
}

fn three(text: &str, between: char) -> Option<[i32; 3]> {
    let mut parts = text.split(between).map(number);
    let mut next = || i32::try_from(parts.next()??).ok();
    let three = [next()?, next()?, next()?];
    parts.next().is_none().then_some(three)
}

/// Hour, minute and second in local time.
pub(super) fn of_day(second: i64) -> (u32, u32, u32) {
    let time = local(second);
    let part = |n: i32| u32::try_from(n).unwrap_or(0);
    (part(time.tm_hour), part(time.tm_min), part(time.tm_sec))
}

fn local(second: i64) -> libc::tm {
    // SAFETY: `tm` is plain data, all zeros are valid, and its zone may be null.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers come from references to values of the right types.
    unsafe { libc::localtime_r(&raw const second, &raw mut time) };
    time
}

/// Converts local time to seconds since 1970. Fields may exceed their usual ranges.
fn seconds(mut time: libc::tm) -> i64 {
    // Let `mktime` find out about daylight saving time.
    time.tm_isdst = -1;
    // SAFETY: `time` comes from `localtime_r`, with other numbers. `mktime` does not read its zone.
    unsafe { libc::mktime(&raw mut time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed() {
        let of_day = |hour, minute, second, ns| Time::OfDay {
            hour,
            minute,
            second,
            ns,
        };
        for (text, time) in [
            ("1700000000", Time::At(1_700_000_000 * NS)),
            ("1700000000.5", Time::At(1_700_000_000 * NS + 500_000_000)),
            ("0.000000001", Time::At(1)),
            ("22:13:20", of_day(22, 13, 20, 0)),
            ("02:03:04.000000005", of_day(2, 3, 4, 5)),
        ] {
            assert_eq!(text.parse(), Ok(time), "{text}");
        }
        for text in [
            "",
            ".",
            "1.",
            "x",
            "-1",
            "+1",
            "1e5",
            "24:00:00",
            "1:2",
            "1:2:3:4",
            "00:60:00",
            "00:00:00.",
            "1.0000000000",
            "9223372036854775807",
            "1969-01-01 00:00:00",
            "2023-13-01 00:00:00",
            "2023-11-14",
            "2023-11-14 22:13:20 1",
            "12 13",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn dates_are_local() {
        let at: Time = "2023-11-14 22:13:20.25".parse().unwrap();
        let Time::At(ns) = at else { panic!("{at:?}") };
        assert_eq!(of_day(ns / NS), (22, 13, 20));
        assert_eq!(ns % NS, 250_000_000);
        assert_eq!("2023-11-14T22:13:20.25".parse(), Ok(at));
    }

    #[test]
    fn time_of_day_is_the_first_one_in_the_trace() {
        let at = |text: &str| match text.parse() {
            Ok(Time::At(ns)) => ns,
            other => panic!("{other:?}"),
        };
        let span = (at("2023-11-14 23:50:00"), at("2023-11-16 00:10:00"));
        for (text, expected) in [
            ("23:55:00", "2023-11-14 23:55:00"),
            ("23:40:00", "2023-11-15 23:40:00"),
            ("00:05:00", "2023-11-15 00:05:00"),
        ] {
            assert_eq!(
                text.parse::<Time>().unwrap().within(span),
                at(expected),
                "{text}"
            );
        }
        let short = (at("2023-11-14 05:22:00"), at("2023-11-14 05:23:00"));
        for (text, expected) in [
            ("05:00:00", "2023-11-14 05:00:00"),
            ("06:00:00", "2023-11-14 06:00:00"),
            ("05:22:30.5", "2023-11-14 05:22:30.5"),
        ] {
            assert_eq!(
                text.parse::<Time>().unwrap().within(short),
                at(expected),
                "{text}"
            );
        }
        assert_eq!(Time::At(7).within(span), 7);
    }
}
