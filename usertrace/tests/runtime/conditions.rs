//! Conditions decide about events by their values.

use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::Trial;
use usertrace::fake::{Fake, Sizes};
use usertrace::{Outcome, event};
use usertrace_sys::filter::{Filter, add_rule, written};

use super::{isolated, traced, update};

usertrace::tracepoint! {
    mod served {
        provider: "shop",
        name: "served",
        loglevel: Info,
        fields: {
            status: u16, path: str, sizes: [u32], negative: i8, port: u16be, ratio: f32,
            state: enum u8 { Idle = 0, "a b" = 1..=3 }, name: [u8; 3], tail: str, last: i64,
        },
    }
}

usertrace::tracepoint! {
    mod other {
        provider: "shop",
        name: "other",
        loglevel: Info,
        fields: { code: u32 },
    }
}

/// Sets the filter of a trace, and follows it.
pub(super) fn set_filter(fake: &Fake, slot: usize, text: &str) {
    let mut filter = Filter::new();
    for word in written(text.as_bytes(), |byte| byte.is_ascii_whitespace()) {
        add_rule(&mut filter, &word).expect("a valid filter");
    }
    fake.set_rule_bytes(slot, filter.rules());
    update();
}

fn put(status: u16, path: &str) -> Outcome {
    event!(
        served,
        status,
        path,
        &[7, 8, 9],
        -5,
        8080,
        0.25,
        2,
        b"xyz",
        "end",
        -1
    )
}

/// Requirements: E4
fn conditions_decide_by_the_values_of_fields() {
    let (fake, slot) = traced(Sizes::default());
    let long = "x".repeat(3000);
    for path in ["/api/users", &long] {
        for (condition, expected) in [
            ("status >= 500", true),
            ("status > 503", false),
            ("status == 503 && tail == \"end\"", true),
            ("path == \"/api/*\"", path.starts_with('/')),
            ("path == \"*x\"", path.ends_with('x')),
            ("path == tail", false),
            ("sizes[0] == 7 && sizes[2] == 9", true),
            ("sizes[3] == 7", false),
            ("_sizes_length == 3", true),
            ("negative < 0 && negative == -5", true),
            ("port == 8080", true),
            ("ratio == 0.25", true),
            ("state == \"a b\" && state == 2", true),
            ("state == \"Idle\"", false),
            ("name[1] == 121", true),
            ("name == \"xyz\"", false),
            ("last == -1", true),
            ("missing == 1", false),
            ("!(missing == 1)", false),
            ("missing == 1 || status == 503", true),
            ("status[0] == 503", false),
            ("$ctx.nothing == 1", false),
            (&format!("$ctx.vpid == {}", std::process::id()), true),
            (
                &format!(
                    "$ctx.pid == {} && $ctx.tid == $ctx.vtid",
                    std::process::id()
                ),
                true,
            ),
            ("$ctx.procname == \"*\" && $ctx.procname != \"?\"", true),
            ("$ctx.hostname == \"*\" && $ctx.hostname != \"\"", true),
            ("$ctx.cpu_id >= 0", true),
            ("$ctx.ip > 4096", true),
            ("$app.undefined == 0", true),
        ] {
            set_filter(fake, slot, &format!("shop:served if {condition}"));
            let expected = if expected {
                Outcome::Recorded
            } else {
                Outcome::Off
            };
            assert_eq!(put(503, path), expected, "{condition} of {}", path.len());
            // Another event, which the filter does not name.
            assert_eq!(event!(other, 1), Outcome::Off);
        }
    }
}

/// Requirements: E4
fn filters_may_mix_rules_with_and_without_conditions() {
    let (fake, slot) = traced(Sizes::default());
    let (on, off) = (Outcome::Recorded, Outcome::Off);
    for (filter, expected) in [
        ("1 shop:served if status == 1", [on, off, on]),
        ("1 !shop:* if status == 1 || code == 1", [off, on, off]),
        (
            "1 !shop:* if status == 1\n!shop:* if status == 2",
            [off, off, on],
        ),
        (
            "0 served if status == 1\n!served if path == \"a\"",
            [off, off, off],
        ),
        (
            "0 served if status == 1\n!served if path == \"b\"",
            [on, off, off],
        ),
        ("served if status == 1\n1", [on, on, on]),
        ("1", [on, on, on]),
        ("1 !* if $ctx.vpid == 0", [on, on, on]),
        ("1 * if $ctx.vpid == 0", [off, off, off]),
    ] {
        set_filter(fake, slot, filter);
        let seen = [put(1, "a"), put(2, "a"), event!(other, 1)];
        assert_eq!(seen, expected, "{filter}");
    }
}

/// A pattern that retries at each byte of a long text is given up, and the event is recorded.
///
/// Requirements: E4, F2
fn costly_patterns_let_events_through() {
    let (fake, slot) = traced(Sizes::default());
    let pattern = format!("\"*{}b\"", "a".repeat(1900));
    for filter in [
        format!("0 served if path == {pattern}"),
        format!("1 !served if path != {pattern}"),
    ] {
        set_filter(fake, slot, &filter);
        for (len, expected) in [(20, Outcome::Off), (3000, Outcome::Recorded)] {
            let path = "a".repeat(len);
            assert_eq!(put(1, &path), expected, "{len} bytes: {filter}");
        }
    }
}

/// Each trace has its own conditions, and an event is in those that let it through.
///
/// Requirements: A7, E4
fn each_trace_has_its_own_conditions() {
    let (fake, first) = traced(Sizes::default());
    let second = fake.create().unwrap();
    fake.start(second);
    set_filter(fake, first, "served if status >= 2");
    set_filter(fake, second, "served if status <= 2");
    for status in 1..=3 {
        assert_eq!(put(status, "p"), Outcome::Recorded);
    }
    let statuses = |slot| {
        let events = fake.events(0, slot);
        let status = |payload: &[u8]| u16::from_le_bytes([payload[0], payload[1]]);
        events
            .iter()
            .map(|seen| status(&seen.payload))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (statuses(first), statuses(second)),
        (vec![2, 3], vec![1, 2])
    );
    // The next trace in the slot has none.
    fake.replace(first);
    fake.start(first);
    update();
    put(1, "p");
    assert_eq!(statuses(first), [1]);
}

/// A condition that is no expression accepts nothing, and is counted.
///
/// Requirements: F2, F4
fn unusable_conditions_accept_nothing() {
    let (fake, slot) = traced(Sizes::default());
    let unusable = || {
        let stats = usertrace::stats().next().expect("a trace");
        stats.unusable_conditions
    };
    assert_eq!(put(1, "a"), Outcome::Recorded);
    let rule = |flags: u8, text: &[u8]| {
        let mut bytes = b"\0\0\x01*\0".to_vec();
        bytes.extend([flags, 6]);
        bytes.extend(b"served");
        for piece in text.chunks(255) {
            bytes.extend([0, 0x10, piece.len() as u8]);
            bytes.extend(piece);
        }
        bytes
    };
    let long = [b"a || ".repeat(600), b"a".to_vec()].concat();
    let deep = [b"(".repeat(1000), b"1".to_vec(), b")".repeat(1000)].concat();
    for flags in [5, 9] {
        for text in [&b"status >"[..], b"\xff\0", &long, &deep] {
            fake.set_rule_bytes(slot, &rule(flags, text));
            update();
            assert_eq!((put(1, "a"), unusable()), (Outcome::Off, 1));
            assert_eq!(event!(other, 1), Outcome::Recorded);
        }
    }
    fake.set_rule_bytes(slot, &rule(9, b"status == 2"));
    update();
    assert_eq!(
        (put(1, "a"), put(2, "a"), unusable()),
        (Outcome::Recorded, Outcome::Off, 0)
    );
}

/// A filter of the greatest size, with as many conditions as fit.
///
/// Requirements: F2
fn the_largest_filter_is_evaluated() {
    let (fake, slot) = traced(Sizes::default());
    let mut filter = Filter::new();
    let mut count = 0u16;
    loop {
        let condition = format!("status=={count}");
        let pattern = format!("x{count}");
        let word = usertrace_sys::filter::Written {
            pattern: pattern.as_bytes(),
            condition: Some(condition.as_bytes()),
        };
        if add_rule(&mut filter, &word).is_err() {
            break;
        }
        count += 1;
    }
    assert!(count > 100);
    fake.set_rule_bytes(slot, filter.rules());
    update();
    assert_eq!(put(1, "a"), Outcome::Off);
    set_filter(
        fake,
        slot,
        &format!("served if path == \"{}\"", "*x".repeat(1000)),
    );
    assert_eq!(put(1, &"x".repeat(1000)), Outcome::Recorded);
    assert_eq!(put(1, &"x".repeat(999)), Outcome::Off);
    // More conditions for one event than it can have.
    set_filter(
        fake,
        slot,
        &format!("1 {}", "!served if status == 2\n".repeat(8)),
    );
    assert_eq!(put(1, "a"), Outcome::Off);
    assert_eq!(event!(other, 1), Outcome::Recorded);
}

/// A child evaluates the conditions from its first event on.
///
/// Requirements: A5
fn children_follow_conditions() {
    let (fake, slot) = traced(Sizes::default());
    set_filter(fake, slot, "served if status == 2");
    assert_eq!(
        (put(1, "a"), put(2, "a")),
        (Outcome::Off, Outcome::Recorded)
    );
    let pid = usertrace::fake::process::child(|| {
        assert_eq!(put(1, "a"), Outcome::Off);
        assert_eq!(put(2, "a"), Outcome::Recorded);
        assert_eq!(put(1, "a"), Outcome::Off);
    });
    assert_eq!(usertrace::fake::process::wait(pid), 0);
}

/// While updates replace the conditions, an event is recorded by some of them, and never by the
/// words of two. All conditions here refuse the event of one thread, and accept that of the other.
///
/// Requirements: F2
fn conditions_change_under_load() {
    let (fake, slot) = traced(Sizes {
        subbuf_size: [4096, 4096],
        subbuf_count: [2, 2],
    });
    let filters = [
        "served if status == 1 && path == \"good\"",
        "served if path == \"g*\" && $ctx.vpid > 0",
        "served if sizes[2] == 9 && path != \"bad\" && tail == \"end\"\n!served if status == 2",
        "other if code == 1\nserved if !(path == \"bad\") || status == 3",
    ];
    set_filter(fake, slot, filters[0]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = |status: u16, path: &'static str, refused: bool| {
            let stop = &stop;
            move || {
                let mut wrong = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    wrong += u64::from((put(status, path) == Outcome::Off) != refused);
                }
                wrong
            }
        };
        let good = scope.spawn(writer(1, "good", false));
        let bad = scope.spawn(writer(2, "bad", true));
        for round in 0..2000 {
            set_filter(fake, slot, filters[round % filters.len()]);
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(good.join().unwrap(), 0, "events that conditions accept");
        // A thread that sees the table change again and again records its event.
        let recorded = bad.join().unwrap();
        assert!(recorded < 100, "{recorded} events that conditions refuse");
    });
}

pub(super) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($name:ident),* $(,)?) => { vec![$(isolated(stringify!($name), $name)),*] };
    }
    trials![
        conditions_decide_by_the_values_of_fields,
        filters_may_mix_rules_with_and_without_conditions,
        costly_patterns_let_events_through,
        each_trace_has_its_own_conditions,
        unusable_conditions_accept_nothing,
        the_largest_filter_is_evaluated,
        children_follow_conditions,
        conditions_change_under_load,
    ]
}
