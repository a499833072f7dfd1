//! Fields of any type and value, as `babeltrace2` reads them (B1).

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use usertrace_ctf::{
    Clock, StreamChannel, StreamOwner, TraceInfo, TraceOrigin, TraceWriter, Version,
};
use usertrace_reader::{Item, Printer, Reader, Selection};
use usertrace_ring::PayloadLengths;
use usertrace_ring::schema::EventTable;
use usertrace_sys::Scope;
use usertrace_sys::uapi::LttClockSync;

use usertrace_testing::babeltrace;
use usertrace_testing::fields::{encode, types};
use usertrace_testing::processes::{self, event, trace_in_ns};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Two events with the same fields: the reader gets the written values.
    ///
    /// Requirements: B1
    #[test]
    fn fields_are_read_as_written(
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
            origin: TraceOrigin::Process { name: "p".into(), pid: 1, process: 1 },
            hostname: None,
        };
        let clock = Clock::new(&LttClockSync { freq: 1_000_000_000, ..LttClockSync::default() }, &[]);
        let mut trace = TraceWriter::create(&directory.path().join("trace"), info, clock).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        trace.declare(&event).unwrap();
        let mut stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0)).unwrap();
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
        let read = babeltrace::lines(directory.path());
        prop_assert_eq!(read.lines.len(), expected.len());
        for (line, expected) in read.lines.iter().zip(&expected) {
            prop_assert!(line.ends_with(expected.as_str()), "{} is not {}", line, expected);
        }
    }
}

/// Names that may be confused: with underscores, with suffixes of lengths and duplicates, and
/// keywords of the languages.
fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "_{0,3}(x|y|data)(_length)?(_[23])?",
        1 => "_{1,3}|[0-9_-]{1,2}|(_?_?data_length|struct|int|id|event|timestamp|align|__x_length)",
    ]
}

/// Names and values of a line's fields, which are numbers and texts of letters.
fn pairs(line: &str) -> Vec<(&str, &str)> {
    let (_, fields) = line.rsplit_once("{ ").unwrap();
    let fields = fields.strip_suffix(" }").unwrap().split(", ");
    fields
        .map(|field| field.split_once(" = ").unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// With any set of names, the trace can be read, and each field has a unique name and its
    /// value.
    ///
    /// Requirements: B1, F1
    #[test]
    fn any_set_of_names_is_read(
        fields in prop::collection::vec((names(), any::<bool>()), 1..9),
        contexts in prop::collection::vec(names(), 0..4),
    ) {
        let kind = |is_sequence: bool| if is_sequence { "c8[]" } else { "u8" };
        let described: Vec<_> = fields
            .iter()
            .map(|(name, is_sequence)| format!("{} {name}", kind(*is_sequence)))
            .collect();
        let (mut payload, mut values) = (Vec::new(), Vec::new());
        for (n, (_, is_sequence)) in (1u8..).zip(&fields) {
            if *is_sequence {
                let text = char::from(b'a' + n).to_string().repeat(usize::from(n));
                values.extend([n.to_string(), format!("\"{text}\"")]);
                payload.extend(u32::from(n).to_le_bytes());
                payload.extend(text.bytes());
            } else {
                values.push(n.to_string());
                payload.push(n);
            }
        }
        let contexts: Vec<_> = contexts.iter().map(|name| format!("u8 {name}")).collect();
        let mut read = Vec::new();
        for version in [Version::V1_8, Version::V2] {
            let directory = tempfile::tempdir().unwrap();
            let [fields, contexts] = [&described, &contexts].map(|lines| lines.join(";"));
            write_one_event(directory.path(), version, &fields, &contexts, &payload);
            let babeltrace = match version {
                Version::V1_8 => Command::new("babeltrace2"),
                Version::V2 => usertrace_testing::tools::babeltrace(),
            };
            let (line, said) = printed(babeltrace, directory.path());
            prop_assert_eq!(&said, "", "{}", line);
            let mut ours = (Vec::new(), Printer::new());
            let mut reader = Reader::open(&[directory.path().to_owned()], Selection::default()).unwrap();
            while let Some(item) = reader.next() {
                match item {
                    Item::Event(event) => ours.1.event(&mut ours.0, &event),
                    Item::Lost(_) | Item::Error(_) => prop_assert!(false, "something is wrong"),
                }
            }
            prop_assert_eq!(String::from_utf8(ours.0).unwrap(), line.clone());
            let shown: Vec<_> = pairs(line.trim_end()).into_iter().map(|(_, value)| value.to_owned()).collect();
            prop_assert_eq!(&shown, &values, "{}", line);
            let names: HashSet<_> = pairs(line.trim_end()).into_iter().map(|(name, _)| name).collect();
            prop_assert_eq!(names.len(), values.len(), "{}", line);
            read.push(line);
        }
        prop_assert_eq!(&read[0], &read[1]);
    }
}

/// Writes a trace of one event, in a channel whose contexts are all 1.
fn write_one_event(
    directory: &Path,
    version: Version,
    fields: &str,
    contexts: &str,
    payload: &[u8],
) {
    let of = TraceOrigin::Process {
        name: "p".into(),
        pid: 1,
        process: 1,
    };
    let mut trace = trace_in_ns(&directory.join("trace"), "t", of);
    trace.set_version(version);
    trace.declare(&event(&format!("1 p:e 6 {fields}"))).unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    let mut channel = StreamChannel::new("main", 1);
    let mut of_contexts = Vec::new();
    if !contexts.is_empty() {
        let described = processes::contexts(&format!("@1 {contexts}"));
        trace.declare_contexts(Scope::Cpu, &described).unwrap();
        channel.set_contexts();
        of_contexts.resize(contexts.split(';').count(), 1);
    }
    let mut stream = trace.stream(&channel, StreamOwner::Cpu(0)).unwrap();
    stream.event(1, 1, &of_contexts, payload).unwrap();
    stream.finish().unwrap();
}

/// The output and the messages of a `babeltrace2`.
fn printed(mut babeltrace: Command, directory: &Path) -> (String, String) {
    let output = babeltrace.arg(directory).output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (stdout, stderr)
}
