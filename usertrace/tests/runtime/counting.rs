//! Channels that count events in place of recording them.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use usertrace::fake::process::{child, wait};
use usertrace::fake::{Fake, Sizes};
use usertrace::{Outcome, event};
use usertrace_ring::{CountKey, CountValues};
use usertrace_sys::Scope;
use usertrace_sys::filter::{Filter, add_rule, put, written};
use usertrace_sys::uapi::{
    LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE, LTT_RULE_KEY, LTT_RULE_VALUE,
};
use usertrace_testing::counts::counts;

use super::{attach_to, isolated, update};

usertrace::tracepoint! {
    mod sold {
        provider: "shop",
        name: "sold",
        loglevel: Info,
        fields: {
            size: u32, who: str, negative: i8, port: u16be, ratio: f32, is: bool,
            state: enum u8 { Idle = 0, "a b" = 1..=3 }, list: [u16], name: [u8; 3], last: i64,
        },
    }
}

usertrace::tracepoint! {
    mod other {
        provider: "shop",
        name: "other",
        loglevel: Info,
        fields: { code: u32, more: u64 },
    }
}

/// What a channel counts: its rules, value and key.
pub(super) struct Counting<'a> {
    pub(super) patterns: &'a [&'a str],
    pub(super) value: &'a str,
    pub(super) key: &'a str,
}

/// The rules of a trace with a filter, whose channels behind main count.
pub(super) fn rules_of(filter: &str, channels: &[Counting<'_>]) -> Vec<u8> {
    let mut rules = Filter::new();
    for word in written(filter.as_bytes(), |byte| byte.is_ascii_whitespace()) {
        add_rule(&mut rules, &word).expect("a valid filter");
    }
    for (index, channel) in (2..).zip(channels) {
        for pattern in channel.patterns {
            put(&mut rules, index, 0, pattern.as_bytes()).expect("room");
        }
        for (flags, name) in [(LTT_RULE_VALUE, channel.value), (LTT_RULE_KEY, channel.key)] {
            if !name.is_empty() {
                put(&mut rules, index, flags, name.as_bytes()).expect("room");
            }
        }
    }
    rules.rules().to_vec()
}

/// A kernel whose traces have channels behind main that count.
pub(super) fn counting(channels: &[Counting<'_>]) -> &'static Fake {
    let sizes: Vec<u32> = (channels.iter())
        .map(|channel| match channel.value {
            "" => LTT_COUNT_CELL_PLAIN,
            _ => LTT_COUNT_CELL_VALUE,
        })
        .collect();
    Fake::with_tables(Sizes::default(), &[Some(Scope::Cpu)], &sizes)
}

/// Starts a trace whose channels behind main count.
pub(super) fn started(fake: &Fake, filter: &str, channels: &[Counting<'_>]) -> usize {
    let slot = fake.create().expect("a slot");
    fake.set_rule_bytes(slot, &rules_of(filter, channels));
    fake.start(slot);
    slot
}

/// A process with a trace whose channels behind main count.
pub(super) fn counted(filter: &str, channels: &[Counting<'_>]) -> (&'static Fake, usize) {
    let fake = attach_to(counting(channels));
    let slot = started(fake, filter, channels);
    update();
    (fake, slot)
}

fn sell(size: u32, who: &str, last: i64) -> Outcome {
    event!(
        sold,
        size,
        who,
        -5,
        8080,
        0.5,
        true,
        2,
        &[7, 8, 9],
        b"xyz",
        last
    )
}

/// The counters of a channel, of all CPUs, by the names of events.
pub(super) fn cells(
    fake: &Fake,
    process: usize,
    (slot, channel): (usize, usize),
    signed: bool,
) -> BTreeMap<(String, CountKey), (u64, Option<CountValues>)> {
    let metadata = fake.metadata(process, slot);
    let mut all = BTreeMap::new();
    for (_, cell) in fake.cells(process, slot, channel) {
        let name = match cell.id {
            Some(id) => metadata.get(id).expect("a description").name.clone(),
            None => String::new(),
        };
        let (count, values): &mut (u64, Option<CountValues>) =
            all.entry((name, cell.key)).or_insert((0, None));
        *count += cell.count;
        match (values, cell.values) {
            (Some(sum), Some(more)) => sum.add(&more, signed),
            (none, more) => *none = more,
        }
    }
    all
}

/// A channel's count comes in place of records; other events go where they would go otherwise.
fn counted_events_leave_no_records() {
    let channels = [Counting {
        patterns: &["shop:sold"],
        value: "",
        key: "",
    }];
    let (fake, slot) = counted("shop:*", &channels);
    for n in 0..10 {
        assert_eq!(sell(n, "x", 1), Outcome::Recorded);
        assert_eq!(event!(other, n, 0), Outcome::Recorded);
    }
    assert_eq!(fake.events(0, slot).len(), 10);
    let cells = cells(fake, 0, (slot, 2), false);
    let name = ("shop:sold".to_owned(), CountKey::None);
    assert_eq!(cells.into_iter().collect::<Vec<_>>(), [(name, (10, None))]);
    let counting = fake.counting(0, slot, 2).expect("a description");
    assert_eq!((counting.value, counting.key), (None, None));
    assert_eq!(fake.lost_of(0, slot, 2), 0);
    fake.stop(slot);
    update();
    assert_eq!(sell(1, "x", 1), Outcome::Off);
}

/// Values of all types of integers, and keys of all kinds, at any place in the payload, also in
/// payloads that are composed in the ring.
fn values_and_keys_are_taken_from_any_field() {
    let long = "y".repeat(3000);
    let number = |n: u64| CountKey::Number(n);
    let text = |text: &str| CountKey::Text(text.as_bytes().to_vec());
    let minus = |n: i64| number(n.cast_unsigned());
    for who in ["me", &long] {
        let cut = &who[..who.len().min(32)];
        for (value, sum, key, expected) in [
            ("size", 3 * 1000, "", CountKey::None),
            ("size", 3 * 1000, "who", text(cut)),
            ("negative", 3 * -5, "negative", minus(-5)),
            ("port", 3 * 8080, "port", number(8080)),
            ("is", 3, "is", number(1)),
            ("state", 3 * 2, "state", number(2)),
            ("last", 3 * -7, "last", minus(-7)),
            ("last", 3 * -7, "name", CountKey::None),
            ("size", 3 * 1000, "ratio", CountKey::None),
            ("size", 3 * 1000, "missing", CountKey::None),
            (
                "size",
                3 * 1000,
                "$ctx.vpid",
                number(std::process::id().into()),
            ),
            ("size", 3 * 1000, "list", CountKey::None),
        ] {
            let channels = [Counting {
                patterns: &["*"],
                value,
                key,
            }];
            let status = wait(child(|| {
                let expected = match key {
                    "$ctx.vpid" => number(std::process::id().into()),
                    _ => expected.clone(),
                };
                let (fake, slot) = counted("shop:*", &channels);
                for _ in 0..3 {
                    assert_eq!(sell(1000, who, -7), Outcome::Recorded);
                }
                let signed = sum < 0;
                let cells = cells(fake, 0, (slot, 2), signed);
                let name = ("shop:sold".to_owned(), expected);
                let (count, values) = cells.get(&name).unwrap_or_else(|| panic!("{cells:?}"));
                let values = values.as_ref().expect("values");
                assert_eq!((*count, values.number()), (3, 3), "{value} by {key}");
                assert_eq!(values.sum, sum, "{value} by {key}");
                assert_eq!(i128::from(values.min.cast_signed()), sum / 3);
                assert_eq!(cells.len(), 1);
                let counting = fake.counting(0, slot, 2).expect("a description");
                assert_eq!(counting.value.as_deref(), Some(value));
                assert_eq!(
                    counting.key.as_deref(),
                    Some(key).filter(|key| !key.is_empty())
                );
            }));
            assert_eq!(status, 0, "{value} by {key}, {} bytes", who.len());
        }
    }
}

/// An event without the value's field counts, and has no value; texts and floats are no values.
fn events_without_the_value_only_count() {
    let channels = [Counting {
        patterns: &["*"],
        value: "who",
        key: "code",
    }];
    let (fake, slot) = counted("shop:*", &channels);
    sell(1, "x", 2);
    event!(other, 17, 5);
    event!(other, 17, 5);
    let cells = cells(fake, 0, (slot, 2), false);
    for (name, key, expected) in [
        ("shop:sold", CountKey::None, 1),
        ("shop:other", CountKey::Number(17), 2),
    ] {
        let (count, values) = &cells[&(name.to_owned(), key)];
        assert_eq!((*count, values.as_ref().unwrap().number()), (expected, 0));
    }
}

/// The conditions of a trace decide first, and the first channel that accepts an event counts it.
fn conditions_come_first_and_channels_in_order() {
    let channels = [
        Counting {
            patterns: &["other"],
            value: "code",
            key: "",
        },
        Counting {
            patterns: &["*"],
            value: "size",
            key: "$ctx.vtid",
        },
    ];
    let filter = "shop:sold if size > 10 && who == \"a*\"\nshop:other";
    let (fake, slot) = counted(filter, &channels);
    for (size, who, outcome) in [
        (11, "abc", Outcome::Recorded),
        (10, "abc", Outcome::Off),
        (12, "bc", Outcome::Off),
        (13, "a", Outcome::Recorded),
    ] {
        assert_eq!(sell(size, who, 0), outcome);
    }
    assert_eq!(event!(other, 5, 1), Outcome::Recorded);
    let first = cells(fake, 0, (slot, 2), false);
    let second = cells(fake, 0, (slot, 3), false);
    assert_eq!((first.len(), second.len()), (1, 1));
    let (count, values) = second.values().next().unwrap();
    assert_eq!((*count, values.as_ref().unwrap().sum), (2, 24));
    let (count, values) = first.values().next().unwrap();
    assert_eq!((*count, values.as_ref().unwrap().sum), (1, 5));
    assert!(fake.events(0, slot).is_empty());

    // A later filter moves events to main; what was counted stays.
    let mut rules = Filter::new();
    put(&mut rules, 0, 0, b"*").unwrap();
    fake.set_rule_bytes(slot, rules.rules());
    update();
    assert_eq!(sell(1, "x", 0), Outcome::Recorded);
    assert_eq!(fake.events(0, slot).len(), 1);
    assert_eq!(cells(fake, 0, (slot, 3), false), second);
}

/// A trace that counts and one that records get each event both.
fn other_traces_record_what_one_counts() {
    let channels = [Counting {
        patterns: &["*"],
        value: "code",
        key: "",
    }];
    let (fake, slot) = counted("shop:*", &channels);
    let second = fake.create().unwrap();
    fake.start(second);
    update();
    for n in 0..100 {
        assert_eq!(event!(other, n, 0), Outcome::Recorded);
    }
    assert_eq!(fake.events(0, second).len(), 100);
    let cells = cells(fake, 0, (slot, 2), false);
    let (count, values) = cells.values().next().unwrap();
    assert_eq!((*count, values.as_ref().unwrap().sum), (100, 4950));
}

/// A child counts in tables of its own, from its first event on.
fn children_have_tables_of_their_own() {
    let channels = [Counting {
        patterns: &["*"],
        value: "code",
        key: "",
    }];
    let (fake, slot) = counted("shop:*", &channels);
    event!(other, 3, 0);
    let status = wait(child(|| {
        assert_eq!(event!(other, 4, 0), Outcome::Recorded);
        assert_eq!(event!(other, 5, 0), Outcome::Recorded);
    }));
    assert_eq!(status, 0);
    let sum = |process| {
        let cells = cells(fake, process, (slot, 2), false);
        cells
            .values()
            .next()
            .map(|(count, values)| (*count, values.as_ref().unwrap().sum))
    };
    assert_eq!((sum(0), sum(1)), (Some((1, 3)), Some((2, 9))));
}

/// While traces come and go, and their filters change, no count goes astray: each trace has what
/// was counted by it, and nothing of others.
fn traces_that_count_change_under_load() {
    let channels = [
        Counting {
            patterns: &["other"],
            value: "code",
            key: "more",
        },
        Counting {
            patterns: &["*"],
            value: "more",
            key: "",
        },
    ];
    let (fake, slot) = counted("shop:*", &channels);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let rounds = counts(100, 1000);
    std::thread::scope(|scope| {
        let write = || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // The value is always the same, and the key another.
                event!(other, 40, 7);
            }
        };
        let threads = [scope.spawn(write), scope.spawn(write)];
        for round in 0..rounds {
            let (flags, name) = if round % 2 == 0 { (0, "*") } else { (1, "*") };
            let rules = [
                (0, 0, "*"),
                (2, LTT_RULE_VALUE, "code"),
                (2, LTT_RULE_KEY, "more"),
                (3, LTT_RULE_VALUE, "more"),
                (2, flags, name),
                (3, 0, "*"),
            ];
            if round % 10 == 9 {
                fake.replace(slot);
                fake.set_rules(slot, &rules);
                fake.start(slot);
            } else {
                fake.set_rules(slot, &rules);
            }
            update();
            std::thread::yield_now();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let mut seen = 0;
    for (channel, value) in [(2, 40), (3, 7)] {
        for (name, (count, values)) in cells(fake, 0, (slot, channel), false) {
            let values = values.unwrap();
            assert_eq!(name.0, "shop:other");
            // An event that an update has just moved may count without its value.
            assert_eq!(values.sum, value * i128::from(values.number()));
            assert!(values.number() <= count);
            seen += count;
        }
    }
    assert!(seen > 0);
    assert_eq!(fake.late_writes(), 0);
}

pub(super) fn trials() -> Vec<Trial> {
    [
        (
            "counted_events_leave_no_records",
            counted_events_leave_no_records as fn(),
        ),
        (
            "values_and_keys_are_taken_from_any_field",
            values_and_keys_are_taken_from_any_field,
        ),
        (
            "events_without_the_value_only_count",
            events_without_the_value_only_count,
        ),
        (
            "conditions_come_first_and_channels_in_order",
            conditions_come_first_and_channels_in_order,
        ),
        (
            "other_traces_record_what_one_counts",
            other_traces_record_what_one_counts,
        ),
        (
            "children_have_tables_of_their_own",
            children_have_tables_of_their_own,
        ),
        (
            "traces_that_count_change_under_load",
            traces_that_count_change_under_load,
        ),
    ]
    .into_iter()
    .map(|(name, test)| isolated(name, test))
    .collect()
}
