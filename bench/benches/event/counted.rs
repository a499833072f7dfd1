//! Events that are counted in place of being recorded.

use std::hint::black_box;

use usertrace::event;
use usertrace_bench::{EventWriter, Rows};
use usertrace_sys::uapi::{LTT_RULE_KEY, LTT_RULE_VALUE};

use super::contest::{Contestant, contest};
use super::floor::Floors;
use super::ours::Ours;
use super::{KINDS, Kind, floor, our};

mod points {
    usertrace::tracepoint! {
        pub(crate) mod plain { provider: "bench", name: "counted-plain", loglevel: Info, fields: { n: u32 } }
    }
    usertrace::tracepoint! {
        pub(crate) mod value { provider: "bench", name: "counted-value", loglevel: Info, fields: { n: u32 } }
    }
    usertrace::tracepoint! {
        pub(crate) mod key { provider: "bench", name: "counted-key", loglevel: Info, fields: { n: u32 } }
    }
}

/// The rules of a trace whose tables are those of [`Ours`].
const RULES: [(u8, u8, &str); 7] = [
    (0, 0, "*"),
    (2, 0, "counted-plain"),
    (3, 0, "counted-value"),
    (3, LTT_RULE_VALUE, "n"),
    (4, 0, "counted-key"),
    (4, LTT_RULE_VALUE, "n"),
    (4, LTT_RULE_KEY, "n"),
];

/// The kind of event that these are.
const RECORDED: &Kind = &KINDS[1];

#[inline(never)]
fn plain(count: u64) {
    use points::plain;
    for n in 0..count {
        event!(plain, black_box(n) as u32);
    }
}

#[inline(never)]
fn value(count: u64) {
    use points::value;
    for n in 0..count {
        event!(value, black_box(n) as u32);
    }
}

/// 64 keys.
#[inline(never)]
fn key(count: u64) {
    use points::key;
    for n in 0..count {
        event!(key, (black_box(n) % 64) as u32);
    }
}

/// Writes so many events.
type Events = fn(u64);

/// How events are counted, by name.
pub(crate) const WAYS: [(&str, Events); 3] = [
    ("counted", plain),
    ("counted, with a histogram", value),
    ("counted by a number, with a histogram", key),
];

/// Has the first trace count these events, until this is dropped.
pub(crate) struct Counting<'a>(&'a Ours);

impl<'a> Counting<'a> {
    pub(crate) fn new(ours: &'a Ours) -> Self {
        ours.set_rules(&RULES);
        Self(ours)
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.set_rules(&RULES[..1]);
    }
}

/// The floor, an event of that kind that is recorded, and those that are counted, in turns.
pub(crate) fn measure(rows: &mut Rows, ours: &Ours, floors: &Floors, rounds: usize) {
    let _counting = Counting::new(ours);
    for threads in [1, 2] {
        let batch = RECORDED.batch();
        let mut names = vec![
            (EventWriter::Floor, String::new()),
            (EventWriter::Usertrace, "per-CPU ring".to_string()),
        ];
        let mut contestants = vec![floor(floors, RECORDED), our(ours, RECORDED)];
        for (name, events) in WAYS {
            names.push((EventWriter::Usertrace, name.to_string()));
            contestants.push(Contestant::new(batch, move |_| events(batch)));
        }
        let times = contest(&contestants, threads, rounds);
        rows.add(names, RECORDED.name, threads, &times);
    }
}
