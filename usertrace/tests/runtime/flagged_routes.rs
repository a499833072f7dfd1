//! The fast paths of events that are counted, or that a comparison decides about.

use std::cmp::Ordering;

use libtest_mimic::Trial;
use usertrace::fake::Sizes;
use usertrace::fake::process::{child, wait};
use usertrace::{Outcome, event};
use usertrace_ring::CountKey;

use super::conditions::set_filter;
use super::counting::{Counting, cells, counted, counting, rules_of, started};
use super::{attach_to, isolated, traced, update};

usertrace::tracepoint! {
    mod packed {
        provider: "shop",
        name: "packed",
        loglevel: Info,
        // The fields `d` and `g` are each in two words, and `i` is behind the first four.
        fields: { a: u8, b: i16, c: u32, d: i64, e: u16be, f: i8, g: u64, h: i32, more: u16, i: u16 },
    }
}

usertrace::tracepoint! {
    mod short {
        provider: "shop",
        name: "short",
        loglevel: Info,
        fields: { code: u32, other: i16 },
    }
}

/// The fields of [`packed`], and the least and the greatest value of each.
const FIELDS: [(&str, i128, i128); 9] = [
    ("a", 0, u8::MAX as i128),
    ("b", i16::MIN as i128, i16::MAX as i128),
    ("c", 0, u32::MAX as i128),
    ("d", i64::MIN as i128, i64::MAX as i128),
    ("e", 0, u16::MAX as i128),
    ("f", i8::MIN as i128, i8::MAX as i128),
    ("g", 0, u64::MAX as i128),
    ("h", i32::MIN as i128, i32::MAX as i128),
    ("i", 0, u16::MAX as i128),
];

/// Writes an event whose fields have such values; others have all bits set.
fn put(field: &str, value: i128) -> Outcome {
    let bits = |name: &str| {
        if name == field {
            value as u64
        } else {
            u64::MAX
        }
    };
    event!(
        packed,
        bits("a") as u8,
        bits("b") as i16,
        bits("c") as u32,
        bits("d") as i64,
        bits("e") as u16,
        bits("f") as i8,
        bits("g"),
        bits("h") as i32,
        0,
        bits("i") as u16
    )
}

/// The values around a constant that a field can have.
fn around(constant: i128, (_, least, greatest): (&str, i128, i128)) -> Vec<i128> {
    let mut values = vec![least, constant - 1, constant, constant + 1, greatest];
    values.retain(|value| (least..=greatest).contains(value));
    values
}

/// One comparison decides about integers of all types, wherever they are in the payload.
///
/// Requirements: E4
fn one_comparison_decides_about_integers_of_all_types() {
    let (fake, slot) = traced(Sizes::default());
    for field in FIELDS {
        let (name, least, greatest) = field;
        for constant in [least, least + 1, 0, 100, greatest] {
            for (sign, orders) in [
                ("<", &[Ordering::Less][..]),
                ("<=", &[Ordering::Less, Ordering::Equal]),
                ("==", &[Ordering::Equal]),
                ("!=", &[Ordering::Less, Ordering::Greater]),
                (">=", &[Ordering::Equal, Ordering::Greater]),
                (">", &[Ordering::Greater]),
            ] {
                // A number cannot be that low, but a difference.
                if constant == i64::MIN.into() {
                    continue;
                }
                set_filter(
                    fake,
                    slot,
                    &format!("shop:packed if {name} {sign} {constant}"),
                );
                for value in around(constant, field) {
                    let expected = match orders.contains(&value.cmp(&constant)) {
                        true => Outcome::Recorded,
                        false => Outcome::Off,
                    };
                    assert_eq!(
                        put(name, value),
                        expected,
                        "{value}: {name} {sign} {constant}"
                    );
                }
                fake.consume(0, slot);
            }
        }
    }
}

/// Integers of all types are counted as values and keys, wherever they are in the payload.
fn integers_of_all_types_are_counted() {
    for field in FIELDS {
        let (name, least, greatest) = field;
        let status = wait(child(|| {
            let channels = [Counting {
                patterns: &["*"],
                value: name,
                key: name,
            }];
            let (fake, slot) = counted("shop:*", &channels);
            let values = around(100, field);
            for round in 1..=3 {
                for value in &values {
                    assert_eq!(put(name, *value), Outcome::Recorded);
                }
                let signed = least < 0;
                let cells = cells(fake, 0, (slot, 2), signed);
                assert_eq!(cells.len(), values.len(), "{name}: {cells:?}");
                for value in &values {
                    let key = ("shop:packed".to_owned(), CountKey::Number(*value as u64));
                    let (count, seen) = &cells[&key];
                    let seen = seen.as_ref().unwrap();
                    assert_eq!((*count, seen.sum), (round, i128::from(round) * value));
                    assert_eq!((seen.min, seen.max), (*value as u64, *value as u64));
                }
            }
        }));
        assert_eq!(status, 0, "{name}, up to {greatest}");
    }
}

/// Whether events take the fast path once they have a cell. That does not look for updates, so it
/// does not notice that the trace was stopped. `write` writes an event that is counted.
fn is_fast((value, key): (&str, &str), filter: &str, write: fn() -> Outcome) -> bool {
    let channels = [Counting {
        patterns: &["*"],
        value,
        key,
    }];
    let (fake, slot) = counted(filter, &channels);
    for _ in 0..3 {
        assert_eq!(write(), Outcome::Recorded);
    }
    fake.stop(slot);
    // The slow path follows traces with this one.
    assert_eq!(write(), Outcome::Recorded);
    let is_fast = write() == Outcome::Recorded;
    update();
    assert_eq!(write(), Outcome::Off);
    let number: u64 = cells(fake, 0, (slot, 2), false)
        .values()
        .map(|cell| cell.0)
        .sum();
    assert_eq!(number, if is_fast { 5 } else { 4 });
    is_fast
}

/// What the fast path can do, it does.
fn counted_events_take_the_fast_path() {
    let put_short = || event!(short, 17, -5);
    let put_packed = || put("h", 5);
    let (short_writes, packed_writes) =
        (put_short as fn() -> Outcome, put_packed as fn() -> Outcome);
    for (by, filter, write, expected) in [
        (("", ""), "*", short_writes, true),
        (("", "code"), "*", short_writes, true),
        (("code", ""), "*", short_writes, true),
        (("other", "code"), "*", short_writes, true),
        (("code", "other"), "*", short_writes, true),
        (("", ""), "short if code == 17", short_writes, true),
        (("code", "other"), "short if other < 0", short_writes, true),
        (("", ""), "*", packed_writes, true),
        (("c", "h"), "*", packed_writes, true),
        (("b", "f"), "packed if h == 5", packed_writes, true),
        // Behind the first words, in two of them, or in the other byte order.
        (("i", ""), "*", packed_writes, false),
        (("g", ""), "*", packed_writes, false),
        (("", "d"), "*", packed_writes, false),
        (("", "e"), "*", packed_writes, false),
        // After a comparison, all of these are found, too.
        (("g", "d"), "packed if h == 5", packed_writes, true),
        (("i", "e"), "packed if i == 65535", packed_writes, true),
        // The event has no value, but cells have.
        (("none", ""), "*", short_writes, false),
        (("", "$ctx.vtid"), "*", short_writes, false),
        (
            ("", ""),
            "short if code == 17 && other == -5",
            short_writes,
            false,
        ),
    ] {
        let status = wait(child(|| assert_eq!(is_fast(by, filter, write), expected)));
        assert_eq!(status, 0, "{by:?}, {filter}");
    }
}

/// A process without a signal follows traces when its events are counted or rejected.
///
/// Requirements: A4
fn flagged_events_follow_traces_without_a_signal() {
    // SAFETY: the process has no other thread.
    unsafe { std::env::set_var("USERTRACE_SIGNAL", "none") };
    let channels = [Counting {
        patterns: &["short"],
        value: "",
        key: "",
    }];
    let fake = counting(&channels);
    let slot = started(fake, "*", &channels);
    attach_to(fake);
    assert_eq!(fake.signo(0), 0);
    for _ in 0..3 {
        assert_eq!(event!(short, 1, 2), Outcome::Recorded);
    }
    fake.set_rule_bytes(slot, &rules_of("short if code == 2", &channels));
    event!(short, 1, 2);
    assert_eq!(event!(short, 1, 2), Outcome::Off);
    fake.set_rule_bytes(slot, &rules_of("short if code == 1", &channels));
    event!(short, 1, 2);
    assert_eq!(event!(short, 1, 2), Outcome::Recorded);
    fake.stop(slot);
    event!(short, 1, 2);
    assert_eq!(event!(short, 1, 2), Outcome::Off);
}

pub(super) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($name:ident),* $(,)?) => { vec![$(isolated(stringify!($name), $name)),*] };
    }
    trials![
        one_comparison_decides_about_integers_of_all_types,
        integers_of_all_types_are_counted,
        counted_events_take_the_fast_path,
        flagged_events_follow_traces_without_a_signal,
    ]
}
