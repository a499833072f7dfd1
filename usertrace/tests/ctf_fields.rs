//! B1: fields of any type, with any values, and what `babeltrace2` reads of them.

#[path = "support/babeltrace.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod babeltrace;

use proptest::prelude::*;
use usertrace::ctf::{Clock, StreamChannel, StreamOf, TraceInfo, TraceWriter};
use usertrace::metadata::EventTable;
use usertrace::ring::PayloadLengths;
use usertrace::writer::Scope;
use usertrace_sys::uapi::LttClockSync;

const INTEGERS: [&str; 21] = [
    "u8", "u16", "u32", "u64", "x8", "x16", "x32", "x64", "s8", "s16", "s32", "s64", "u16be",
    "u32be", "u64be", "x16be", "x32be", "x64be", "s16be", "s32be", "s64be",
];

/// A type, as the header has it.
#[derive(Clone, Debug)]
enum Type {
    Number(&'static str),
    Array(&'static str, usize),
    Sequence(&'static str),
    Str,
    Chars(usize),
    CharSequence,
    /// Labels, each with seeds of its first and its last value.
    Enum(&'static str, Vec<(String, u64, u64)>),
}

fn types() -> impl Strategy<Value = Type> {
    let integer = || prop::sample::select(&INTEGERS);
    let number = || prop_oneof![4 => integer(), 1 => prop::sample::select(&["f32", "f64", "bool"])];
    let label = "[a-z \"\\\\=,;{}%\u{1}ü*/\n.]{0,5}";
    prop_oneof![
        number().prop_map(Type::Number),
        (number(), 1usize..5).prop_map(|(kind, len)| Type::Array(kind, len)),
        number().prop_map(Type::Sequence),
        Just(Type::Str),
        (1usize..9).prop_map(Type::Chars),
        Just(Type::CharSequence),
        (
            integer(),
            prop::collection::vec((label, any::<u64>(), any::<u64>()), 1..4)
        )
            .prop_map(|(kind, labels)| Type::Enum(kind, labels)),
    ]
}

/// What stands for any text in a description.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let bytes = text.bytes();
    bytes
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// A text that a reader puts between quotes. Control characters are not written.
fn quoted(text: &str) -> String {
    let text = text.replace(char::is_control, "\u{fffd}");
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The integer that a seed makes: its value, its bytes, and how it is shown.
fn integer(kind: &str, seed: u64) -> (i128, Vec<u8>, String) {
    let be = kind.ends_with("be");
    let bits: u32 = kind[1..].trim_end_matches("be").parse().unwrap();
    let low = seed << (64 - bits) >> (64 - bits);
    let value = match kind.starts_with('s') {
        true => i128::from((low << (64 - bits)).cast_signed() >> (64 - bits)),
        false => i128::from(low),
    };
    let mut bytes = low.to_le_bytes()[..bits as usize / 8].to_vec();
    if be {
        bytes.reverse();
    }
    let shown = match kind.starts_with('x') {
        true => format!("0x{value:X}"),
        false => value.to_string(),
    };
    (value, bytes, shown)
}

/// A number that a seed makes: its bytes, and how it is shown.
fn number(kind: &str, seed: u64) -> (Vec<u8>, String) {
    // Of these all digits are shown.
    let quarters = f32::from(seed as u16 as i16) / 4.0;
    match kind {
        "f32" => (quarters.to_le_bytes().into(), quarters.to_string()),
        "f64" => (
            f64::from(quarters).to_le_bytes().into(),
            quarters.to_string(),
        ),
        "bool" => (vec![(seed % 2) as u8], (seed % 2).to_string()),
        _ => {
            let (_, bytes, shown) = integer(kind, seed);
            (bytes, shown)
        }
    }
}

/// A text of at most `room` bytes that seeds make.
fn text(seeds: &[u64], room: usize) -> String {
    let mut text = String::new();
    for seed in seeds {
        let c = ['a', 'Z', ' ', 'ü', '日', '.'][(seed % 6) as usize];
        if text.len() + c.len_utf8() <= room {
            text.push(c);
        }
    }
    text
}

fn numbers(kind: &str, seeds: &[u64], len: usize) -> (Vec<u8>, String) {
    let (mut bytes, mut shown) = (Vec::new(), String::from("["));
    for n in 0..len {
        let (element, text) = number(kind, seeds[n % seeds.len()]);
        bytes.extend(element);
        let comma = if n == 0 { "" } else { "," };
        shown += &format!("{comma} [{n}] = {text}");
    }
    (bytes, shown + " ]")
}

impl Type {
    fn describe(&self) -> String {
        match self {
            Type::Number(kind) => (*kind).to_owned(),
            Type::Array(kind, len) => format!("{kind}[{len}]"),
            Type::Sequence(kind) => format!("{kind}[]"),
            Type::Str => "str".to_owned(),
            Type::Chars(len) => format!("c8[{len}]"),
            Type::CharSequence => "c8[]".to_owned(),
            Type::Enum(kind, _) => {
                let labels: Vec<_> = self
                    .labels()
                    .iter()
                    .map(|(label, first, last)| match first == last {
                        true => format!("{}={first}", encode(label)),
                        false => format!("{}={first}..{last}", encode(label)),
                    })
                    .collect();
                format!("{kind}{{{}}}", labels.join(","))
            }
        }
    }

    /// Labels that differ, and the values that each stands for.
    fn labels(&self) -> Vec<(String, i128, i128)> {
        let Type::Enum(kind, labels) = self else {
            return Vec::new();
        };
        let labels = labels.iter().enumerate();
        labels
            .map(|(n, (label, a, b))| {
                let (a, b) = (integer(kind, *a).0, integer(kind, *b).0);
                (format!("{label}{n}"), a.min(b), a.max(b))
            })
            .collect()
    }

    /// The payload's part that seeds make, and how the field is shown.
    fn value(&self, name: &str, seeds: &[u64]) -> (Vec<u8>, String) {
        let sequence = |len: usize, elements: Vec<u8>, shown: String| {
            let bytes = [(len as u32).to_le_bytes().to_vec(), elements].concat();
            (bytes, format!("_{name}_length = {len}, {name} = {shown}"))
        };
        let (bytes, shown) = match self {
            Type::Number(kind) => number(kind, seeds[0]),
            Type::Array(kind, len) => numbers(kind, seeds, *len),
            Type::Sequence(kind) => {
                let len = (seeds[0] % 5) as usize;
                let (elements, shown) = numbers(kind, seeds, len);
                return sequence(len, elements, shown);
            }
            Type::Str => {
                let text = text(seeds, usize::MAX);
                ([text.as_bytes(), b"\0"].concat(), quoted(&text))
            }
            Type::Chars(len) => {
                let text = text(seeds, *len);
                let mut bytes = text.clone().into_bytes();
                // What is behind a NUL is not text.
                bytes.resize((text.len() + 1).min(*len), 0);
                bytes.resize(*len, b'x');
                (bytes, quoted(&text))
            }
            Type::CharSequence => {
                let text = text(seeds, usize::MAX);
                return sequence(text.len(), text.clone().into_bytes(), quoted(&text));
            }
            Type::Enum(kind, labels) => {
                // Also the ends of the ranges.
                let of_labels = labels.iter().flat_map(|(_, first, last)| [*first, *last]);
                let values: Vec<u64> = of_labels.chain([seeds[0]]).collect();
                let (value, bytes, shown) = integer(kind, values[seeds[1] as usize % values.len()]);
                let its: Vec<_> = self
                    .labels()
                    .iter()
                    .filter(|(_, first, last)| (*first..=*last).contains(&value))
                    .map(|(label, ..)| quoted(label))
                    .collect();
                let its = if its.is_empty() {
                    "<unknown>".to_owned()
                } else {
                    its.join(", ")
                };
                (bytes, format!("( {its} : container = {shown} )"))
            }
        };
        (bytes, format!("{name} = {shown}"))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Two events of one kind: what is read is what was written.
    #[test]
    fn b1_fields_are_read_as_they_were_written(
        types in prop::collection::vec(types(), 1..6),
        seeds in prop::collection::vec(any::<u64>(), 16),
        format in prop::option::of("(\\*/|/\\*|\\PC|\"|\\\\|\n){1,6}"),
    ) {
        let mut fields: Vec<_> = format.iter().map(|text| format!("fmt {}", encode(text))).collect();
        for (n, kind) in types.iter().enumerate() {
            fields.push(format!("{} f{n}", kind.describe()));
        }
        let line = format!("7 p:n 6 {}", fields.join(";"));
        let mut events = EventTable::default();
        let event = events.describe(line.as_bytes()).unwrap().unwrap().clone();
        prop_assert_eq!(event.line(), line);
        prop_assert_eq!(&event.format, &format);

        let directory = tempfile::tempdir().unwrap();
        let info = TraceInfo {
            trace_name: "t".into(),
            procname: "p".into(),
            pid: 1,
            hostname: None,
        };
        let clock = Clock::new(&LttClockSync { freq: 1_000_000_000, ..LttClockSync::default() }, &[]);
        let mut trace = TraceWriter::create(&directory.path().join("trace"), info, clock).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        trace.declare(&event).unwrap();
        let mut stream = trace.stream(&StreamChannel::new("main", 1), StreamOf::Cpu(0)).unwrap();
        let mut expected = Vec::new();
        for (time, seeds) in (1..).zip(seeds.chunks(8)) {
            let (mut payload, mut shown) = (Vec::new(), Vec::new());
            for (n, kind) in types.iter().enumerate() {
                let mut seeds = seeds.to_vec();
                seeds.rotate_left(n);
                let (bytes, text) = kind.value(&format!("f{n}"), &seeds);
                payload.extend(bytes);
                shown.push(text);
            }
            let long = [&payload[..], &[0xff; 9]].concat();
            prop_assert_eq!(events.payload_len(7, &long), Some(payload.len()));
            prop_assert_eq!(events.payload_len(7, &payload[..payload.len() - 1]), None);
            stream.event(7, time, &[], &payload).unwrap();
            expected.push(format!("{{ {} }}", shown.join(", ")));
        }
        stream.finish().unwrap();
        let read = babeltrace::read(directory.path());
        prop_assert_eq!(read.lines.len(), expected.len());
        for (line, expected) in read.lines.iter().zip(&expected) {
            prop_assert!(line.ends_with(expected.as_str()), "{} is not {}", line, expected);
        }
    }
}
