//! Spans of `tracing` and of pairs of events, by the definitions of OpenTelemetry's protocol (E8).

use std::fs;
use std::path::Path;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, TracesData};
use proptest::prelude::*;
use serde_json::Value;
use usertrace_ctf::{StreamWriter, TraceWriter};
use usertrace_reader::{Item, Reader, Selection};
use usertrace_report::export::{LeftOut, Otlp};
use usertrace_testing::processes::{START, processes, shop_trace, write};

/// The lines of all traces in a directory, and what is not in them.
fn export(directory: &Path) -> (Vec<u8>, LeftOut) {
    let (mut otlp, mut out) = (Otlp::new(), Vec::new());
    let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => otlp.event(&mut out, &event),
            Item::Lost(lost) => otlp.lost(&mut out, &lost, &reader.traces()[lost.trace]),
            Item::Error(error) => panic!("{error}"),
        }
    }
    let left_out = otlp.finish(&mut out);
    (out, left_out)
}

/// Removes what a message need not say: defaults, which one writer leaves out, and another one
/// writes.
fn without_defaults(value: Value) -> Value {
    let is_default = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(is_true) => !is_true,
    };
    match value {
        Value::Object(members) => {
            let members = members
                .into_iter()
                .map(|(key, value)| (key, without_defaults(value)));
            // The value of an attribute is there, also if it is 0 or an empty text.
            let is_needed = |key: &str, value: &Value| key.ends_with("Value") || !is_default(value);
            members
                .filter(|(key, value)| is_needed(key, value))
                .collect()
        }
        Value::Array(elements) => elements.into_iter().map(without_defaults).collect(),
        other => other,
    }
}

/// Reads the lines by the definitions of the protocol. These know all that the lines say.
fn messages(output: &[u8]) -> Vec<TracesData> {
    let text = std::str::from_utf8(output).unwrap();
    let message = |line| {
        let message: TracesData = serde_json::from_str(line).unwrap();
        let ours: Value = serde_json::from_str(line).unwrap();
        let theirs = serde_json::to_value(&message).unwrap();
        assert_eq!(without_defaults(ours), without_defaults(theirs));
        message
    };
    text.lines().map(message).collect()
}

/// The spans with their scopes, in the order of the lines.
fn spans(messages: &[TracesData]) -> Vec<(String, Span)> {
    let resources = messages.iter().flat_map(|message| &message.resource_spans);
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    let spans = scopes.flat_map(|of| {
        let name = of.scope.as_ref().unwrap().name.clone();
        of.spans
            .iter()
            .map(move |span| (name.clone(), span.clone()))
    });
    spans.collect()
}

fn attributes(of: &[KeyValue]) -> Vec<(&str, String)> {
    let text = |value: &Option<AnyValue>| match value.as_ref().unwrap().value.as_ref().unwrap() {
        Any::StringValue(text) => text.clone(),
        Any::IntValue(number) => number.to_string(),
        Any::DoubleValue(number) => format!("{number:?}"),
        other => format!("{other:?}"),
    };
    of.iter().map(|of| (&of.key[..], text(&of.value))).collect()
}

/// A trace whose events have the context `vtid`, with a stream of CPU 0.
fn trace(directory: &Path, events: &[&str]) -> (TraceWriter, StreamWriter) {
    shop_trace(&directory.join("shop-7"), "web1", "@1 u32 vtid", events)
}

const OF_TRACING: [&str; 8] = [
    "1 shop:request.new 6 u64 span;u64 parent;str path",
    "2 shop:request.record 6 u64 span;u64 status",
    "3 shop:request.follows 6 u64 span;u64 follows",
    "4 shop:request.enter 6 u64 span",
    "5 shop:request.exit 6 u64 span",
    "6 shop:request.close 6 u64 span",
    "7 shop:main.rs-12 6 u64 span;str message;f64 share",
    "8 libc:read_entry 6 u32 fd",
];

fn write_event(stream: &mut StreamWriter, (id, time, thread): (u16, u64, u32), fields: &[&[u8]]) {
    let thread = thread.to_ne_bytes();
    let payload = fields.concat();
    stream
        .event(id, 1_000_000 + time, &thread, &payload)
        .unwrap();
}

/// Writes a request with another one in it, a further request, and one that never ends.
fn write_requests(directory: &Path) {
    let events = [&OF_TRACING[..], &["9 libc:read_exit 6 u32 fd;s32 result"]].concat();
    let (_trace, mut stream) = trace(directory, &events);
    let id = |id: u64| id.to_ne_bytes();
    let mut write = |of, fields: &[&[u8]]| write_event(&mut stream, of, fields);
    write((1, 100, 51), &[&id(1), &id(0), b"/\0"]);
    write((4, 110, 51), &[&id(1)]);
    write((1, 120, 51), &[&id(2), &id(1), b"/inner\0"]);
    write((3, 125, 51), &[&id(2), &id(1)]);
    write((7, 130, 51), &[&id(1), b"it's\n\0", &f64::to_ne_bytes(0.5)]);
    write((8, 132, 51), &[&u32::to_ne_bytes(3)]);
    write((9, 135, 51), &[&u32::to_ne_bytes(3), &i32::to_ne_bytes(-1)]);
    write((2, 140, 52), &[&id(1), &id(200)]);
    write((5, 150, 51), &[&id(1)]);
    write((6, 160, 51), &[&id(2)]);
    // Another thread ends it.
    write((6, 200, 52), &[&id(1)]);
    // The id is used again.
    write((1, 300, 51), &[&id(1), &id(0), b"/again\0"]);
    write((6, 310, 51), &[&id(1)]);
    // One that never ends, and an end without a begin.
    write((1, 320, 51), &[&id(3), &id(0), b"/open\0"]);
    write((6, 330, 51), &[&id(99)]);
    stream.finish().unwrap();
}

/// A span begins and ends with the span of the program. It has its fields, events and links.
///
/// Requirements: E8
#[test]
fn spans_of_tracing_are_spans() {
    let directory = tempfile::tempdir().unwrap();
    write_requests(directory.path());
    let (lines, left_out) = export(directory.path());
    assert_eq!((left_out.unbegun, left_out.unended), (1, 1));
    let messages = messages(&lines);
    let resource = messages[0].resource_spans[0].resource.as_ref().unwrap();
    let of_process = attributes(&resource.attributes);
    for (key, value) in [
        ("service.name", "shop"),
        ("host.name", "web1"),
        ("process.pid", "7"),
    ] {
        assert!(
            of_process.contains(&(key, value.to_owned())),
            "{of_process:?}"
        );
    }
    let spans = spans(&messages);
    let [(libc, read), (shop, inner), (_, outer), (_, again)] = &spans[..] else {
        panic!("{spans:?}");
    };
    assert_eq!((&libc[..], &shop[..]), ("libc", "shop"));
    let start = START as u64;
    for (span, name, begin, end) in [
        (read, "read", 132, 135),
        (inner, "request", 120, 160),
        (outer, "request", 100, 200),
        (again, "request", 300, 310),
    ] {
        assert_eq!(span.name, name);
        let times = (span.start_time_unix_nano, span.end_time_unix_nano);
        assert_eq!(times, (start + begin, start + end));
        assert_eq!(span.kind, SpanKind::Internal as i32);
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
    }
    // Both belong to the request in which they are, and the next request is another trace.
    for within in [read, inner] {
        assert_eq!(within.parent_span_id, outer.span_id);
        assert_eq!(within.trace_id, outer.trace_id);
    }
    assert_eq!(outer.parent_span_id, Vec::<u8>::new());
    assert!(again.trace_id != outer.trace_id && again.span_id != outer.span_id);
    assert_eq!(inner.links[0].span_id, outer.span_id);
    assert_eq!(
        attributes(&outer.attributes),
        [
            ("path", "/".to_owned()),
            ("thread.id", "51".to_owned()),
            ("status", "200".to_owned()),
            ("busy_ns", "40".to_owned()),
            ("idle_ns", "60".to_owned())
        ]
    );
    let [happened] = &outer.events[..] else {
        panic!("{:?}", outer.events);
    };
    assert_eq!(
        (&happened.name[..], happened.time_unix_nano),
        ("main.rs-12", start + 130)
    );
    assert_eq!(
        attributes(&happened.attributes),
        [
            ("message", "it's\n".to_owned()),
            ("share", "0.5".to_owned())
        ]
    );
    let of_read = [
        ("fd", "3"),
        ("thread.id", "51"),
        ("end.fd", "3"),
        ("result", "-1"),
    ];
    assert_eq!(
        attributes(&read.attributes),
        of_read.map(|(key, text)| (key, text.to_owned()))
    );
}

/// Pairs of events nest in their thread. A missing end is that of what is around.
#[test]
fn pairs_of_events_are_spans() {
    let directory = tempfile::tempdir().unwrap();
    let events = [
        "1 f:entry 6 x64 at",
        "2 f:exit 6 x64 at",
        "3 p:l_req 6",
        "4 p:l_acq 6",
    ];
    let (_trace, mut stream) = trace(directory.path(), &events);
    let at = u64::MAX.to_ne_bytes();
    let mut write = |of, fields: &[&[u8]]| write_event(&mut stream, of, fields);
    write((1, 10, 51), &[&at]);
    write((1, 20, 52), &[&at]);
    write((1, 30, 51), &[&at]);
    write((3, 40, 51), &[]);
    write((2, 50, 52), &[&at]);
    write((2, 60, 51), &[&at]);
    write((2, 70, 51), &[&at]);
    write((4, 80, 51), &[]);
    stream.discard(3);
    stream.finish().unwrap();
    let (lines, left_out) = export(directory.path());
    assert_eq!((left_out.unbegun, left_out.unended), (1, 0));
    let spans = spans(&messages(&lines));
    let found: Vec<_> = spans
        .iter()
        .map(|(scope, span)| {
            let [begin, end] = [span.start_time_unix_nano, span.end_time_unix_nano];
            let parent = spans
                .iter()
                .find(|(_, parent)| parent.span_id == span.parent_span_id);
            let parent = parent.map(|(_, parent)| parent.start_time_unix_nano - START as u64);
            (
                &scope[..],
                &span.name[..],
                begin - START as u64,
                end - START as u64,
                parent,
            )
        })
        .collect();
    assert_eq!(
        found[..4],
        [
            ("f", "f", 20, 50, None),
            ("p", "l", 40, 60, Some(30)),
            ("f", "f", 30, 60, Some(10)),
            ("f", "f", 10, 70, None),
        ]
    );
    let (scope, name, ..) = found[4];
    assert_eq!((scope, name, found.len()), ("usertrace", "events lost", 5));
    let at = attributes(&spans[0].1.attributes);
    assert_eq!(at[0], ("at", u64::MAX.to_string()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Whatever the fields are, the lines are of the protocol.
    ///
    /// Requirements: E8
    #[test]
    fn any_fields_are_of_the_protocol(processes in prop::collection::vec(processes(), 1..3)) {
        let directory = tempfile::tempdir().unwrap();
        for (pid, process) in (1..).zip(&processes) {
            write(directory.path(), pid, process);
            // All of its events begin or end something.
            let metadata = directory.path().join(format!("p-{pid}/metadata"));
            let text = fs::read_to_string(&metadata).unwrap();
            let text = text.replace("p:e-0", "p:e_entry").replace("p:e-1", "p:e_exit");
            fs::write(&metadata, text).unwrap();
        }
        let (lines, _) = export(directory.path());
        messages(&lines);
    }
}
