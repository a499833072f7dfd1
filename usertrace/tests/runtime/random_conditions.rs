//! Random conditions choose the same random events in a program, when a trace is read, and by the
//! values that `babeltrace2` prints.

use std::collections::BTreeSet;

use libtest_mimic::Trial;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use usertrace::event;
use usertrace::fake::{Seen, Sizes};
use usertrace_expression::{Answer, Integer};
use usertrace_reader::{Condition, Declared, Occurrence, ProcessOf, fields_of};
use usertrace_testing::babeltrace::{self, Printed};
use usertrace_testing::expression_model::{Given, Tree, evaluate, print, trees};
use usertrace_testing::processes::write_events;

use super::conditions::set_filter;
use super::{isolated, traced};

const CONDITIONS: usize = 600;
/// Events of a trace, so that its file is shorter than the 32 KiB that `babeltrace2` reads at once:
/// for an empty text at the end of such a part, 2.0.4 prints the text of the event before.
const EVENTS: usize = 12;

usertrace::tracepoint! {
    mod random {
        provider: "shop",
        name: "random",
        loglevel: Info,
        fields: {
            id: u32, a: u8, b: i64, t: str, q: [u16], u: u64be,
            e: enum i8 { low = -128..=-1, zero = 0, "a*b" = 1..=9, high = 5..=127 },
            s: str, n: [i32; 3], f: f64, d: bytes, c: f32, last: bool,
        },
    }
}

/// What expressions refer to, in the order of [`given`].
const FIELDS: [&str; 20] = [
    "a",
    "b",
    "t",
    "q[0]",
    "q[2]",
    "_q_length",
    "q",
    "u",
    "e",
    "s",
    "n[1]",
    "n[3]",
    "f",
    "d[0]",
    "_d_length",
    "c",
    "last",
    "nothing",
    "$ctx.vpid",
    "$ctx.nothing",
];

/// The values of an event that `babeltrace2` printed.
fn given(printed: &Printed) -> Vec<Given> {
    let value = |name: &str| printed.value(name).expect(name);
    let signed = |name: &str| Given::Signed(value(name).parse().expect(name));
    let unsigned = |name: &str| Given::Unsigned(printed.field(name));
    let float = |name: &str| Given::Float(value(name).parse().expect(name));
    let text = |name: &str| Given::Text(printed.text(name).into());
    let element = |name: &str, index: usize| printed.element(name, index);
    let natural = |name: &str, index: usize| match element(name, index) {
        Some(element) => Given::Unsigned(element.parse().expect(element)),
        None => Given::Missing,
    };
    let integer = |name: &str, index: usize| match element(name, index) {
        Some(element) => Given::Signed(element.parse().expect(element)),
        None => Given::Missing,
    };
    let (labels, number) = printed.enumeration("e");
    let labels = labels.into_iter().map(|label| label.as_bytes().to_vec());
    let state = Given::Enumeration(Integer::Signed(number), labels.collect());
    vec![
        unsigned("a"),
        signed("b"),
        text("t"),
        natural("q", 0),
        natural("q", 2),
        unsigned("_q_length"),
        // A sequence of numbers has no value.
        Given::Missing,
        unsigned("u"),
        state,
        text("s"),
        integer("n", 1),
        integer("n", 3),
        float("f"),
        natural("d", 0),
        unsigned("_d_length"),
        float("c"),
        Given::Bool(value("last") == "1"),
        Given::Missing,
        Given::Unsigned(std::process::id().into()),
        Given::Missing,
    ]
}

/// Writes a random event, whose number is `id`.
fn put(id: u32, random: u64) {
    let texts = ["", "abc", "a*b", "zero", "ac"];
    let pick = |shift: u32, count: usize| (random >> shift) as usize % count;
    let long = "xyz ".repeat(pick(0, 2) * 400);
    event!(
        random,
        id,
        [0, 1, 7, 255][pick(1, 4)],
        [0, -1, 7, i64::MIN, 65535][pick(3, 5)],
        texts[pick(6, 5)],
        &[7, 40000, 1][..pick(9, 4)],
        [0, 1, 65535, u64::MAX][pick(12, 4)],
        [-128, -1, 0, 1, 7, 100][pick(14, 6)],
        &format!("{long}{}", texts[pick(17, 5)]),
        &[[1, -1, 0], [0, 7, i32::MIN]][pick(20, 2)],
        [0.5, -1.5, 0.0, f64::NAN][pick(21, 4)],
        [&b"a"[..], b"", &[255; 600]][pick(23, 3)],
        [0.5, 7.0][pick(25, 2)],
        pick(26, 2) == 1,
    );
}

/// Whether `--where` chooses an event.
fn chooses(condition: &Condition, seen: &Seen) -> bool {
    let fields = fields_of(&seen.event.fields);
    let declared = Declared {
        packet: &[],
        contexts: &[],
        fields: &fields,
    };
    let occurrence = Occurrence {
        declared,
        packet: &[],
        contexts: &[],
        payload: &seen.payload,
        process: ProcessOf::Process(std::process::id(), ""),
    };
    condition.holds(&condition.bind(&declared), &occurrence)
}

/// Requirements: E4, F1
fn readers_and_programs_choose_the_same_events() {
    let (fake, all) = traced(Sizes::default());
    let chosen = fake.create().unwrap();
    fake.start(chosen);
    let mut runner = TestRunner::default();
    let strategy = trees(FIELDS.len());
    let mut conditions: Vec<(Tree, String, Condition)> = Vec::new();
    while conditions.len() < CONDITIONS {
        let tree = strategy.new_tree(&mut runner).unwrap().current();
        let mut text = Vec::new();
        print(&tree, &FIELDS, &mut text);
        let Some((text, condition)) = String::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok().map(|condition| (text, condition)))
        else {
            continue;
        };
        set_filter(fake, chosen, &format!("0 random if {text}"));
        put(conditions.len() as u32, runner.rng().next_u64());
        conditions.push((tree, text, condition));
    }

    let id = |seen: &Seen| u32::from_le_bytes(*seen.payload.first_chunk().unwrap());
    let by_program: BTreeSet<_> = fake.events(0, chosen).iter().map(id).collect();
    let events = fake.events(0, all);
    let condition = |id: u32| &conditions[id as usize];
    let by_reader: BTreeSet<_> = events
        .iter()
        .filter(|seen| chooses(&condition(id(seen)).2, seen))
        .map(id)
        .collect();
    let directory = tempfile::tempdir().unwrap();
    for (n, some) in events.chunks(EVENTS).enumerate() {
        let payloads = some.iter().map(|seen| seen.payload.as_slice());
        let trace = directory.path().join(n.to_string());
        write_events(&trace, &some[0].event, payloads);
        let len = trace.join("main_0").metadata().unwrap().len();
        assert!(len < 32768, "{len}");
    }
    let mut printed = babeltrace::read(directory.path()).events;
    printed.sort_by_key(|event| event.field("id"));
    assert_eq!(printed.len(), CONDITIONS);
    let by_values: BTreeSet<_> = printed
        .iter()
        .map(|printed| (printed.field("id") as u32, printed))
        .filter(|(id, printed)| evaluate(&condition(*id).0, &given(printed)) == Answer::True)
        .map(|(id, _)| id)
        .collect();

    for id in 0..CONDITIONS as u32 {
        let answers = [&by_program, &by_reader, &by_values].map(|chosen| chosen.contains(&id));
        let (_, text, _) = condition(id);
        assert!(
            answers == [answers[0]; 3],
            "program, reader, reference: {answers:?} for {text} and {}",
            printed[id as usize].fields
        );
    }
    let count = by_program.len();
    assert!((60..CONDITIONS - 60).contains(&count), "{count} chosen");
}

pub(super) fn trials() -> Vec<Trial> {
    let name = "readers_and_programs_choose_the_same_events";
    vec![isolated(name, readers_and_programs_choose_the_same_events)]
}
