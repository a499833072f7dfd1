//! Events fire triggers, by their names and values.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libtest_mimic::Trial;
use usertrace::fake::process::{child, wait};
use usertrace::fake::{Fake, Sizes};
use usertrace::{Outcome, event};
use usertrace_sys::filter::{Filter, Trigger, add_rule, put_trigger, written};
use usertrace_sys::uapi::{LTT_MAX_TRIGGERS, LTT_RULE_EXPR, LTT_RULE_TRIGGER};

use super::{attach, isolated, signo, traced, update};

usertrace::tracepoint! {
    mod error {
        provider: "shop",
        name: "error",
        loglevel: Error,
        fields: { code: u32, text: str, last: i64 },
    }
}

usertrace::tracepoint! {
    mod fixed {
        provider: "shop",
        name: "fixed",
        loglevel: Info,
        fields: { code: u32, size: u64 },
    }
}

/// Encodes a filter and triggers. The triggers have the numbers from `first` on.
fn encoded(filter: &str, first: u8, triggers: &[&str]) -> Vec<u8> {
    let mut rules = Filter::new();
    for word in written(filter.as_bytes(), |byte| byte.is_ascii_whitespace()) {
        add_rule(&mut rules, &word).expect("a valid filter");
    }
    for (number, line) in (first..=u8::MAX).zip(triggers) {
        let trigger = Trigger::parse(line).expect("a valid trigger");
        put_trigger(&mut rules, number, &trigger).expect("room for the trigger");
    }
    rules.rules().to_vec()
}

/// Sets the filter and the triggers of a trace, and follows them.
fn set(fake: &Fake, slot: usize, filter: &str, triggers: &[&str]) {
    fake.set_rule_bytes(slot, &encoded(filter, 1, triggers));
    update();
}

fn put(code: u32, text: &str) -> Outcome {
    event!(error, code, text, -7)
}

/// Requirements: E4
fn patterns_and_expressions_decide_whatever_the_filter_is() {
    let (fake, slot) = traced(Sizes::default());
    let long = "x".repeat(3000);
    for (filter, recorded) in [("1", true), ("0", false), ("shop:* if code == 0", false)] {
        for (trigger, short_fires, long_fires) in [
            ("error", 1, 1),
            ("*", 1, 1),
            ("shop:err*", 1, 1),
            ("fixed", 0, 0),
            ("shop", 0, 0),
            ("* if code == 7", 1, 1),
            ("* if code == 8", 0, 0),
            ("* if text == \"*x\"", 0, 1),
            ("* if last == -7 && text != \"x*\"", 1, 0),
            ("* if missing == 1", 0, 0),
            ("* if !(missing == 1)", 0, 0),
            ("* if $ctx.ip > 4096 && $ctx.vpid > 0", 1, 1),
        ] {
            set(fake, slot, filter, &[&format!("{trigger} then stop")]);
            for (text, fires) in [("short", short_fires), (&long, long_fires)] {
                let outcome = put(7, text);
                assert_eq!(outcome == Outcome::Recorded, recorded, "{filter}");
                assert_eq!(fake.fired(slot, 1), fires, "{trigger} of {}", text.len());
            }
        }
        set(fake, slot, filter, &["* if size == 9 then stop"]);
        event!(fixed, 7, 9);
        event!(fixed, 7, 8);
        assert_eq!(fake.fired(slot, 1), 1);
        // Without its trigger, the event fires nothing.
        set(fake, slot, filter, &[]);
        event!(fixed, 7, 9);
        assert_eq!(fake.fired(slot, 1), 0);
    }
}

/// The event that stops a trace is the last one of it.
///
/// Requirements: E4
fn an_event_is_recorded_before_it_fires() {
    let (fake, slot) = traced(Sizes::default());
    set(fake, slot, "1", &["* if code == 7 then stop"]);
    fake.act(slot, 1, false);
    let on = Outcome::Recorded;
    assert_eq!((put(1, "a"), event!(fixed, 2, 0)), (on, on));
    assert_eq!(put(7, "the end"), on);
    assert_eq!(fake.written_when_fired(slot), fake.written(0, slot));
    // Also without the update signal.
    assert_eq!(
        (put(1, "b"), event!(fixed, 7, 0)),
        (Outcome::Off, Outcome::Off)
    );
    assert_eq!(fake.events(0, slot).len(), 3);
    // The trigger is evaluated while the trace is stopped.
    assert_eq!(fake.fired(slot, 1), 2);
}

/// Requirements: A7, E4
fn an_event_starts_a_trace_that_was_never_started() {
    let fake = attach(Sizes::default());
    let slot = fake.create().unwrap();
    fake.set_rule_bytes(slot, &encoded("1", 5, &["* if code == 7 then start"]));
    fake.act(slot, 5, true);
    update();
    // It has no buffers yet.
    put(7, "a");
    assert_eq!(fake.fired(slot, 5), 0);
    fake.allocate(slot);
    update();
    assert_eq!(put(1, "a"), Outcome::Off);
    assert_eq!(fake.fired(slot, 5), 0);
    assert!(fake.events(0, slot).is_empty());
    assert_eq!(put(7, "a"), Outcome::Off);
    assert_eq!(fake.fired(slot, 5), 1);
    assert_eq!(put(1, "a"), Outcome::Recorded);
    // Changes are followed while it is not active.
    fake.stop(slot);
    fake.set_rule_bytes(slot, &encoded("1", 6, &["fixed then start"]));
    update();
    put(7, "a");
    event!(fixed, 1, 1);
    assert_eq!((fake.fired(slot, 5), fake.fired(slot, 6)), (0, 1));
}

/// Triggers of an allocated trace change, and it goes, while its rings were never opened.
///
/// Requirements: A9, E4
fn triggers_of_traces_that_never_ran_go_with_them() {
    let fake = attach(Sizes::default());
    let slot = fake.create().unwrap();
    fake.allocate(slot);
    update();
    for (triggers, fired) in [
        (&[][..], 0),
        (&["* then notify"], 1),
        (&[], 0),
        (&["a then stop"], 0),
    ] {
        set(fake, slot, "1", triggers);
        put(1, "a");
        assert_eq!(fake.fired(slot, 1), fired);
    }
    set(fake, slot, "1", &["* then notify"]);
    fake.replace(slot);
    // The process has not heard of it: the call hits nothing.
    put(1, "a");
    assert_eq!((fake.fired(slot, 1), fake.late_fires()), (0, 1));
    fake.allocate(slot);
    update();
    put(1, "a");
    assert_eq!(fake.fired(slot, 1), 0);
    set(fake, slot, "1", &["* then notify"]);
    put(1, "a");
    assert_eq!(fake.fired(slot, 1), 1);
    fake.destroy(slot);
    update();
    put(1, "a");
    assert_eq!((fake.fired(slot, 1), fake.late_fires()), (0, 1));
}

/// Requirements: A7, E4
fn an_event_fires_all_triggers_of_all_traces() {
    let (fake, first) = traced(Sizes::default());
    let second = fake.create().unwrap();
    fake.start(second);
    let all = ["* then notify"; LTT_MAX_TRIGGERS];
    fake.set_rule_bytes(first, &encoded("1", 100, &all));
    let others = [
        "error then stop",
        "fixed then stop",
        "* if code == 7 then stop",
    ];
    fake.set_rule_bytes(second, &encoded("1", 253, &others));
    // The first of them stops its trace, and the others fire nevertheless.
    fake.act(second, 253, false);
    update();
    put(7, "a");
    let fired: Vec<_> = (100..108).map(|number| fake.fired(first, number)).collect();
    assert_eq!(fired, [1; LTT_MAX_TRIGGERS]);
    let fired: Vec<_> = (253..=255)
        .map(|number| fake.fired(second, number))
        .collect();
    assert_eq!(fired, [1, 0, 1]);
    assert_eq!((fake.fired(first, 108), fake.fired(second, 100)), (0, 0));
}

/// Expressions that are none, or that cost too much, fire nothing, and are counted.
///
/// Requirements: F2, F4
fn unusable_expressions_fire_nothing() {
    let (fake, slot) = traced(Sizes::default());
    let unusable = || {
        let stats = usertrace::stats().next().expect("a trace");
        stats.unusable_conditions
    };
    let long = [b"code || ".repeat(300), b"code".to_vec()].concat();
    for text in [&b"code >"[..], b"\xff\0", &long] {
        let mut bytes = b"\0\0\x01*".to_vec();
        bytes.extend([3, LTT_RULE_TRIGGER, 1, b'*']);
        for piece in text.chunks(255) {
            bytes.extend([3, LTT_RULE_EXPR, piece.len() as u8]);
            bytes.extend(piece);
        }
        bytes.extend([4, LTT_RULE_TRIGGER, 1, b'*']);
        fake.set_rule_bytes(slot, &bytes);
        update();
        assert_eq!((put(7, "a"), unusable()), (Outcome::Recorded, 1));
        assert_eq!((fake.fired(slot, 3), fake.fired(slot, 4)), (0, 1));
    }
    let pattern = format!("* if text != \"*{}b\" then stop", "a".repeat(1900));
    set(fake, slot, "1", &[&pattern]);
    for (len, fired) in [(20, 1), (3000, 0)] {
        put(7, &"a".repeat(len));
        assert_eq!(fake.fired(slot, 1), fired, "{len} bytes");
    }
    // Number 0 is none.
    fake.set_rule_bytes(slot, &[0, LTT_RULE_TRIGGER, 1, b'*']);
    update();
    put(7, "a");
    assert_eq!(fake.fired(slot, 0), 0);
}

/// A child fires with its own buffers, from its first event on.
///
/// Requirements: A5
fn children_fire_triggers() {
    for is_started in [true, false] {
        let pid = child(|| {
            let fake = attach(Sizes::default());
            let slot = fake.create().unwrap();
            if is_started {
                fake.start(slot);
            } else {
                fake.allocate(slot);
            }
            set(fake, slot, "1", &["* if code == 7 then notify"]);
            let pid = child(|| {
                put(7, "first");
                put(1, "second");
                put(7, "third");
            });
            assert_eq!(wait(pid), 0);
            assert_eq!(fake.fired(slot, 1), 2);
            assert_eq!(fake.processes(), 2);
            put(7, "parent");
            assert_eq!(fake.fired(slot, 1), 1);
        });
        assert_eq!(wait(pid), 0, "started: {is_started}");
    }
}

/// Requirements: F1
fn handlers_fire_triggers_and_keep_errno() {
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler(_: libc::c_int) {
        put(7, "handler");
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    let (fake, slot) = traced(Sizes::default());
    set(fake, slot, "1", &["* if code == 7 then stop"]);
    fake.act(slot, 1, false);
    let other = signo() + 1;
    // SAFETY: the handler only writes events, and changes an atomic.
    unsafe { libc::signal(other, handler as *const () as libc::sighandler_t) };
    // SAFETY: the location of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *errno = 77 };
    put(7, "a");
    // SAFETY: as above.
    assert_eq!(unsafe { *errno }, 77);
    assert_eq!(fake.fired(slot, 1), 1);
    // SAFETY: the handler is installed.
    assert_eq!(unsafe { libc::raise(other) }, 0);
    assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
    assert_eq!(fake.fired(slot, 1), 1);
    assert_eq!(fake.events(0, slot).len(), 1);
}

/// While updates replace the triggers, an event fires only what one of the lists has for it.
///
/// Requirements: F2
fn triggers_change_under_load() {
    let (fake, slot) = traced(Sizes {
        subbuf_size: [4096, 4096],
        subbuf_count: [2, 2],
    });
    // Number 1 is for the good event, and 2 for no event.
    let lists: [&[&str]; 4] = [
        &[
            "error if code == 1 && text == \"good\" then stop",
            "fixed if code == 9 then stop",
        ],
        &["error if text == \"g*\" && $ctx.vpid > 0 then stop"],
        &[
            "error if text != \"bad\" && last == -7 then stop",
            "error if text == \"x\" then stop",
        ],
        &[
            "* if !(text == \"bad\") || code == 3 then stop",
            "nothing then stop",
            "* if code == 2 then stop",
        ],
    ];
    set(fake, slot, "1", lists[0]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = |code: u32, text: &'static str| {
            let stop = &stop;
            move || {
                while !stop.load(Ordering::Relaxed) {
                    put(code, text);
                }
            }
        };
        scope.spawn(writer(1, "good"));
        scope.spawn(writer(2, "bad"));
        for round in 0..2000 {
            set(fake, slot, "1", lists[round % lists.len()]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(fake.fired(slot, 1) > 100);
    assert!(fake.fired(slot, 3) > 0);
    assert_eq!(fake.fired(slot, 2), 0);
    let others: u32 = (4..=255).map(|number| fake.fired(slot, number)).sum();
    assert_eq!(others, 0);
    // What the bad event fires is number 3 only.
    set(fake, slot, "1", lists[3]);
    put(2, "bad");
    assert_eq!((fake.fired(slot, 1), fake.fired(slot, 3)), (0, 1));
}

/// Triggers of many traces for one event, and filters of the greatest size beside them.
///
/// Requirements: F2
fn all_slots_may_have_triggers() {
    let (fake, first) = traced(Sizes::default());
    let mut slots = vec![first];
    while let Some(slot) = fake.create() {
        fake.start(slot);
        slots.push(slot);
    }
    let condition = format!("text == \"{}\" || code == 7", "*x".repeat(50));
    let line = format!("* if {condition} then notify");
    for slot in &slots {
        let triggers = [&*line; LTT_MAX_TRIGGERS];
        fake.set_rule_bytes(*slot, &encoded(&format!("* if {condition}"), 1, &triggers));
    }
    update();
    put(7, "a");
    for slot in &slots {
        for number in 1..=LTT_MAX_TRIGGERS as u8 {
            assert_eq!(fake.fired(*slot, number), 1, "{number} of slot {slot}");
        }
    }
}

pub(super) fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($name:ident),* $(,)?) => { vec![$(isolated(stringify!($name), $name)),*] };
    }
    trials![
        patterns_and_expressions_decide_whatever_the_filter_is,
        an_event_is_recorded_before_it_fires,
        an_event_starts_a_trace_that_was_never_started,
        triggers_of_traces_that_never_ran_go_with_them,
        an_event_fires_all_triggers_of_all_traces,
        unusable_expressions_fire_nothing,
        children_fire_triggers,
        handlers_fire_triggers_and_keep_errno,
        triggers_change_under_load,
        all_slots_may_have_triggers,
    ]
}
