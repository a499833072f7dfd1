//! `usertrace export` writes what `usertrace view` prints, as far as another reader can tell (E8,
//! F1).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;
use serde_json::Value;
use usertrace_ctf::{StreamChannel, StreamOwner, StreamWriter, TraceWriter};
use usertrace_reader::{
    Field, Hosts, Item, LossKind, Number, Printer, Reader, Selection, Trace, Values,
};
use usertrace_ring::schema::{Element, FieldType, Integer, Scalar};
use usertrace_sys::Scope;

use usertrace_testing::processes::{START, clock, contexts, event, info, processes, write};
use usertrace_testing::spans::SpanTrace;

fn command(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.args(arguments).current_dir(directory);
    command.env("TZ", "UTC").output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The lines on standard error, without those about the clocks of several hosts.
fn complaints(output: &Output) -> Vec<&str> {
    let lines = text(&output.stderr).lines();
    let of_hosts = ["usertrace: host \"", "usertrace: the traces of "];
    lines
        .filter(|line| !of_hosts.iter().any(|start| line.starts_with(start)))
        .collect()
}

/// A number as C's `%g` prints it.
fn six_digits(number: f64) -> String {
    let mut text = [0u8; 64];
    // SAFETY: `snprintf` writes at most the given length, and the format takes one double.
    let len = unsafe { libc::snprintf(text.as_mut_ptr().cast(), 64, c"%g".as_ptr(), number) };
    std::str::from_utf8(&text[..len as usize])
        .unwrap()
        .replace("-nan", "nan")
}

/// The bytes of a text in JSON.
fn bytes(value: &Value) -> Vec<u8> {
    let Value::Object(object) = value else {
        return value.as_str().unwrap().as_bytes().to_vec();
    };
    let hex = object["hex"].as_str().unwrap();
    let digits = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]);
    let bytes: Vec<u8> = digits
        .map(|digits| u8::from_str_radix(digits, 16).unwrap())
        .collect();
    assert!(std::str::from_utf8(&bytes).is_err());
    assert_eq!(object["text"], *String::from_utf8_lossy(&bytes));
    bytes
}

/// A text, as in the line of an event.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for &byte in text {
        let short = b"\\'\"?\x07\x08\x1b\x0c\n\r\t\x0b".iter();
        let short = short.zip(b"\\'\"?abefnrtv").find(|(b, _)| **b == byte);
        match (short, byte) {
            (Some((_, short)), _) => quoted.extend([b'\\', *short]),
            (None, 0..0x20 | 0x7f) => quoted.extend(format!("\\x{byte:02x}").bytes()),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'"');
    usertrace_testing::babeltrace::escaped(&quoted)
}

fn integer(value: &Value, kind: Integer) -> String {
    if !kind.hex && kind.len < 8 {
        return value.as_number().unwrap().to_string();
    }
    let text = value.as_str().unwrap();
    assert_eq!(text.starts_with("0x"), kind.hex);
    text.to_owned()
}

fn scalar(value: &Value, kind: Scalar) -> String {
    match (kind, value) {
        (Scalar::Integer(kind), value) => integer(value, kind),
        (Scalar::Float { .. }, Value::String(text)) => match &text[..] {
            "NaN" => "nan".to_owned(),
            "Infinity" => "inf".to_owned(),
            "-Infinity" => "-inf".to_owned(),
            _ => panic!("{text}"),
        },
        (Scalar::Float { .. }, value) => {
            assert!(value.is_f64(), "{value}");
            six_digits(value.as_f64().unwrap())
        }
        (Scalar::Bool, _) => panic!("a trace has none"),
    }
}

/// Fields with these values in JSON, as in the line of an event.
fn line(fields: &[Field], values: &Value) -> Vec<u8> {
    assert_eq!(values.as_object().unwrap().len(), fields.len());
    let mut shown = Vec::new();
    for field in fields {
        let value = &values[&field.name];
        let mut text = Vec::new();
        let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(length_name) = &field.length_name {
            // JSON omits the length: a list has its elements, and a text needs none.
            text.extend(format!("{length_name} = , ").bytes());
        }
        text.extend(format!("{} = ", field.name).bytes());
        match &field.kind {
            FieldType::Scalar(kind) => text.extend(scalar(value, *kind).bytes()),
            FieldType::Str
            | FieldType::Array(Element::Char, _)
            | FieldType::Sequence(Element::Char) => text.extend(quoted(&bytes(value))),
            FieldType::Enum(kind, _) => {
                let labels = value["labels"].as_array().unwrap().iter();
                let labels: Vec<_> = labels
                    .map(|label| quoted(label.as_str().unwrap().as_bytes()))
                    .collect();
                text.extend(b"( ");
                match &labels[..] {
                    [] => text.extend(b"<unknown>"),
                    labels => text.extend(labels.join(&b", "[..])),
                }
                let value = integer(&value["value"], *kind);
                text.extend(format!(" : container = {value} )").bytes());
            }
            FieldType::Array(Element::Scalar(kind), _)
            | FieldType::Sequence(Element::Scalar(kind)) => {
                text.push(b'[');
                for (n, element) in elements.iter().enumerate() {
                    let comma = if n == 0 { "" } else { "," };
                    text.extend(format!("{comma} [{n}] = {}", scalar(element, *kind)).bytes());
                }
                text.extend(b" ]");
            }
        }
        shown.push(text);
    }
    match &shown[..] {
        [] => b"{ }".to_vec(),
        shown => [b"{ ", &shown.join(&b", "[..])[..], b" }"].concat(),
    }
}

/// The line without what JSON lacks: signs of NaN, and numbers of elements.
fn comparable(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line).replace("-nan", "nan");
    let parts = line.split("_length = ");
    let parts: Vec<_> = parts
        .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()))
        .collect();
    parts.join("_length = ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// From JSON and the types of fields follows the output of `view`, for all types and any bytes.
    ///
    /// Requirements: E8
    #[test]
    fn json_has_all_that_is_printed(
        processes in prop::collection::vec(processes(), 1..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (pid, process) in (1..).zip(&processes) {
            write(directory.path(), pid, process);
        }
        let output = command(directory.path(), &["export", "--json", "."]);
        prop_assert_eq!(output.status.code(), Some(0));
        prop_assert!(complaints(&output).is_empty());
        let mut objects = text(&output.stdout).lines().map(|line| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        });
        let mut reader = Reader::open(&[directory.path().to_owned()], Selection::default()).unwrap();
        let mut printer = Printer::new();
        while let Some(item) = reader.next() {
            let object = objects.next().unwrap();
            match item {
                Item::Event(event) => {
                    let mut expected = Vec::new();
                    printer.event(&mut expected, &event);
                    prop_assert_eq!(&object["time"], &event.ns.to_string());
                    let (env, pid) = (event.trace.metadata(), object["pid"].as_i64().unwrap());
                    prop_assert_eq!(Some(pid), env.pid());
                    for (key, name) in [("host", "hostname"), ("process", "procname"), ("trace", "trace_name")] {
                        prop_assert_eq!(object.get(key).and_then(Value::as_str), env.env_text(name));
                    }
                    prop_assert_eq!(object["loglevel"].as_u64(), event.class.loglevel.map(u64::from));
                    // The text before the fields also depends on the previous event.
                    let name = format!(") {}{}: ", head(&object), object["event"].as_str().unwrap());
                    let mut parts = Vec::new();
                    if let Some(packet) = object.get("packet") {
                        parts.push(line(&event.stream.packet, packet));
                    }
                    if let Some(context) = object.get("context") {
                        parts.push(line(event.stream.contexts.as_ref().unwrap(), context));
                    }
                    parts.push(line(&event.class.fields, &object["fields"]));
                    let end = [name.as_bytes(), &parts.join(&b", "[..]), b"\n"].concat();
                    let (expected, end) = (comparable(&expected), comparable(&end));
                    prop_assert!(expected.ends_with(&end), "{:?} is not the end of {:?}", end, expected);
                }
                Item::Lost(lost) => {
                    let (what, count) = match lost.kind {
                        LossKind::Events(n) => ("events", n),
                        LossKind::Packets(n) => ("packets", n),
                    };
                    prop_assert_eq!(&object["lost"], what);
                    prop_assert_eq!(&object["count"], &count.to_string());
                    prop_assert_eq!(&object["since"], &lost.begin.to_string());
                    prop_assert_eq!(&object["time"], &lost.end.to_string());
                    let trace = lost.path.parent().unwrap().file_name().unwrap().to_str().unwrap();
                    prop_assert_eq!(format!("p-{}", object["pid"]), trace);
                    prop_assert_eq!(&object["file"], lost.path.file_name().unwrap().to_str().unwrap());
                }
                Item::Error(error) => panic!("{error}"),
            }
        }
        prop_assert_eq!(objects.next(), None);
    }
}

/// The part of a line before the event's name.
fn head(object: &Value) -> String {
    let mut parts: Vec<String> = ["host", "process"]
        .iter()
        .filter_map(|key| object.get(key)?.as_str().map(str::to_owned))
        .collect();
    parts.push(format!("({})", object["pid"]));
    parts.join(":") + " "
}

/// A trace of `t:number` and `t:text`, with a stream.
fn trace(directory: &Path, pid: u32) -> (TraceWriter, StreamWriter) {
    let path = directory.join(format!("prog-{pid}"));
    let mut trace =
        TraceWriter::create(&path, info("prog", pid, None), clock(1_000_000_000)).unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    trace.declare(&event("1 t:number 6 u64 n")).unwrap();
    trace.declare(&event("2 t:text 99 str s")).unwrap();
    let stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0));
    (trace, stream.unwrap())
}

/// Writes twelve events, one each second from 2023-11-14 22:13:20 UTC on.
fn twelve(directory: &Path, pid: u32) {
    let (_, mut stream) = trace(directory, pid);
    for n in 0..12u64 {
        let time = 1_000_000 + n * 1_000_000_000;
        match n % 3 {
            0 => stream.event(2, time, &[], b"it's\n\0").unwrap(),
            _ => stream.event(1, time, &[], &u64::MAX.to_ne_bytes()).unwrap(),
        }
    }
    stream.finish().unwrap();
}

/// Integers of 64 bits are exact, unknown log levels are left out, and options select events as for
/// `view`.
///
/// Requirements: E8
#[test]
fn json_lines_are_selected() {
    let directory = tempfile::tempdir().unwrap();
    twelve(directory.path(), 1);
    twelve(directory.path(), 2);
    let export = |arguments: &[&str]| {
        let output = command(
            directory.path(),
            &[&["export", "--json", "."], arguments].concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let lines = |arguments: &[&str]| export(arguments).lines().count();
    assert_eq!(lines(&[]), 24);
    assert_eq!(
        export(&["--pid", "2", "--to", "22:13:21"]),
        "{\"time\":\"1700000000000000000\",\"process\":\"prog\",\"pid\":2,\"trace\":\"a trace\",\"event\":\"t:text\",\
         \"packet\":{\"cpu_id\":0},\"fields\":{\"s\":\"it's\\n\"}}\n\
         {\"time\":\"1700000001000000000\",\"process\":\"prog\",\"pid\":2,\"trace\":\"a trace\",\"event\":\"t:number\",\
         \"loglevel\":6,\"packet\":{\"cpu_id\":0},\"fields\":{\"n\":\"18446744073709551615\"}}\n"
    );
    assert_eq!(lines(&["-e", "text"]), 8);
    assert_eq!(lines(&["-e", "t:*,!t:text", "--pid", "1"]), 8);
    assert_eq!(lines(&["--from", "1700000010"]), 4);
}

#[test]
fn failed_exports_set_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    twelve(path, 1);
    let fails = |arguments: &[&str], status: i32, expected: &str| {
        let output = command(path, &[&["export"], arguments].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        text(&output.stdout).lines().count()
    };
    assert_eq!(fails(&["--json", "none"], 1, "none: No such file"), 0);
    assert_eq!(fails(&["."], 2, "--json"), 0);
    assert_eq!(fails(&["--json"], 2, "required"), 0);
    assert_eq!(fails(&["--json", "-e", "a/b", "."], 2, "is no pattern"), 0);
    assert_eq!(
        fails(&["--json", "-o", "no/file", "."], 1, "cannot write no/file"),
        0
    );
    assert_eq!(
        fails(
            &["--json", "-o", "/dev/full", "."],
            1,
            "cannot write /dev/full"
        ),
        0
    );
    // An existing file stays until a replacement is complete.
    fs::write(path.join("file"), "mine").unwrap();
    fails(&["--json", "-o", "file", "none"], 1, "No such file");
    fails(&["--json", "-o", "file", "-e", "a/b", "."], 2, "no pattern");
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "mine");
    assert_eq!(fails(&["--json", "-o", "file", "."], 0, ""), 0);
    assert_eq!(
        fs::read_to_string(path.join("file"))
            .unwrap()
            .lines()
            .count(),
        12
    );
    let stream = path.join("prog-1/main_0");
    let mut bytes = fs::read(&stream).unwrap();
    bytes.truncate(bytes.len() - 1);
    fs::write(&stream, &bytes).unwrap();
    assert_eq!(fails(&["--json", "."], 3, "a packet is cut short"), 11);
    bytes[0] += 1;
    fs::write(&stream, &bytes).unwrap();
    assert_eq!(fails(&["--json", "."], 3, "there is no packet"), 0);
}

#[test]
fn closed_pipe_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let (_trace, mut stream) = trace(directory.path(), 1);
    for n in 0..50_000u64 {
        stream
            .event(1, 1_000_000 + n, &[], &n.to_ne_bytes())
            .unwrap();
    }
    stream.finish().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(["export", "--json", "."])
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

/// Exports all traces of a directory, and queries them with Perfetto's trace processor, which must
/// not complain.
fn ask(directory: &Path, arguments: &[&str], queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
    let all = [&["export", "--perfetto", "-o", "out", "."], arguments].concat();
    let output = command(directory, &all);
    let said = complaints(&output);
    assert_eq!((output.status.code(), &said[..]), (Some(0), &[][..]));
    let complaints =
        "select name, value from stats where severity in ('error', 'data_loss') and value > 0";
    let queries = [&[complaints], queries].concat();
    let mut answers = usertrace_testing::tools::trace_processor(&directory.join("out"), &queries);
    assert!(answers.remove(0).is_empty());
    answers
}

/// Query for slices: time, duration, name, depth, process, thread, track, and id.
const SLICES: &str = "select s.ts, s.dur, s.name, s.depth, p.pid, t.tid, track.name, s.id, s.category \
    from slice s join track on s.track_id = track.id \
    left join thread_track tt on tt.id = s.track_id left join thread t using (utid) \
    left join process_track pt on pt.id = s.track_id \
    left join process p on p.upid = coalesce(pt.upid, t.upid) order by s.ts, s.id";

const ARGUMENTS: &str = "select s.id, substr(a.key, 7), a.value_type, a.string_value, a.int_value, a.real_value \
    from slice s join args a using (arg_set_id) where a.key glob 'debug.*'";

fn string(value: &Value) -> Option<&str> {
    value.as_str()
}

/// Adds the arguments that a field becomes, by name.
fn arguments(all: &mut BTreeMap<String, String>, name: &str, value: usertrace_reader::Value<'_>) {
    let number = |number| match number {
        Number::Integer(Integer { hex: true, .. }, bits) => {
            format!("pointer {}", bits.cast_signed())
        }
        Number::Integer(Integer { signed: true, .. }, bits) => {
            format!("int {}", bits.cast_signed())
        }
        Number::Integer(_, bits) => format!("uint {}", bits.cast_signed()),
        Number::F32(number) => real(f64::from(number)),
        Number::F64(number) => real(number),
        Number::Bool(_) => panic!("a trace has none"),
    };
    match value {
        usertrace_reader::Value::Scalar(value) => drop(all.insert(name.to_owned(), number(value))),
        usertrace_reader::Value::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => drop(all.insert(name.to_owned(), format!("string {text}"))),
            Err(_) => {
                let text = String::from_utf8_lossy(bytes);
                all.insert(format!("{name}.text"), format!("string {text}"));
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                all.insert(format!("{name}.hex"), format!("string {hex}"));
            }
        },
        usertrace_reader::Value::Enum(value) => {
            let labels: Vec<_> = value.names().collect();
            if !labels.is_empty() {
                all.insert(
                    format!("{name}.label"),
                    format!("string {}", labels.join(", ")),
                );
            }
            let value = number(Number::Integer(value.kind, value.bits));
            all.insert(format!("{name}.value"), value);
        }
        usertrace_reader::Value::List(elements) => {
            for (n, element) in elements.enumerate() {
                all.insert(format!("{name}[{n}]"), number(element));
            }
        }
    }
}

fn real(number: f64) -> String {
    // SQL has no NaN.
    if number.is_nan() {
        "real none".to_owned()
    } else {
        format!("real {}", number + 0.0)
    }
}

/// The arguments of each slice, as [`arguments`] has them.
fn arguments_of(rows: &[Vec<Value>]) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for row in rows {
        let kind = string(&row[2]).unwrap();
        let value = match kind {
            "string" => string(&row[3]).unwrap().to_owned(),
            "real" => match string(&row[5]) {
                Some(number) => (number.parse::<f64>().unwrap() + 0.0).to_string(),
                None => "none".to_owned(),
            },
            _ => string(&row[4]).unwrap().to_owned(),
        };
        let of = all.entry(string(&row[0]).unwrap().to_owned()).or_default();
        let before = of.insert(
            string(&row[1]).unwrap().to_owned(),
            format!("{kind} {value}"),
        );
        assert_eq!(before, None);
    }
    all
}

proptest! {
    // Each case starts the trace processor, which takes a second or more.
    #![proptest_config(ProptestConfig { cases: 5, max_shrink_iters: 10, ..ProptestConfig::default() })]

    /// Each event has its time, process, track and arguments, and losses are there, too.
    ///
    /// Requirements: E8
    #[test]
    #[ignore = "full tier: perfetto_has_slices_of_threads reads a small trace"]
    fn perfetto_reads_all_that_is_printed(
        processes in prop::collection::vec(processes(), 1..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (pid, process) in (1..).zip(&processes) {
            write(directory.path(), pid, process);
        }
        let answers = ask(directory.path(), &[], &[SLICES, ARGUMENTS, "select pid, name from process where pid > 0"]);
        let arguments_of = arguments_of(&answers[1]);
        let mut read: Vec<_> = answers[0].iter().map(|row| {
            let of = |n: usize| string(&row[n]).unwrap_or("-").to_owned();
            let place = match (string(&row[5]), string(&row[6])) {
                (Some(tid), _) => format!("thread {tid}"),
                (None, name) => name.unwrap_or("-").to_owned(),
            };
            (of(0), of(1), of(2), of(4), place, arguments_of.get(&of(7)).cloned().unwrap_or_default())
        }).collect();

        let mut reader = Reader::open(&[directory.path().to_owned()], Selection::default()).unwrap();
        let hosts = Hosts::of(reader.traces());
        let name = |trace: &Trace| {
            let name = trace.metadata().env_text("procname").unwrap();
            match hosts.all.len() {
                1 => name.to_owned(),
                _ => format!("{}: {name}", hosts.all[hosts.of_trace[trace.number()]].name),
            }
        };
        let (mut expected, mut names) = (Vec::new(), BTreeMap::new());
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => {
                    let pid = event.trace.metadata().pid().unwrap();
                    names.insert(pid.to_string(), name(event.trace));
                    let (mut all, mut place) = (BTreeMap::new(), "-".to_owned());
                    for (field, value) in Values::new(&event.class.fields, event.payload) {
                        arguments(&mut all, &field.name, value);
                    }
                    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
                    for (field, value) in Values::new(contexts, event.contexts) {
                        arguments(&mut all, &format!("context.{}", field.name), value);
                    }
                    for (field, value) in Values::new(&event.stream.packet, event.packet) {
                        let usertrace_reader::Value::Scalar(Number::Integer(_, number)) = value else { panic!("{value:?}") };
                        place = match (&field.name[..], number) {
                            ("cpu_id", cpu) => format!("CPU {cpu}"),
                            ("tid", 1..) => format!("thread {number}"),
                            (name, _) => format!("{name} {number}"),
                        };
                        arguments(&mut all, &format!("packet.{}", field.name), value);
                    }
                    all.insert("loglevel".into(), format!("uint {}", event.class.loglevel.unwrap()));
                    expected.push((event.ns.to_string(), "0".to_owned(), event.class.name.clone(), pid.to_string(), place, all));
                }
                Item::Lost(lost) => {
                    let (what, count) = match lost.kind {
                        LossKind::Events(n) => ("events", n),
                        LossKind::Packets(n) => ("packets", n),
                    };
                    let pid = reader.traces()[lost.trace].metadata().pid().unwrap();
                    let place = format!("lost in {}", lost.path.file_name().unwrap().to_str().unwrap());
                    let all = [(what.to_owned(), format!("uint {count}"))].into();
                    let duration = (lost.end - lost.begin).to_string();
                    expected.push((lost.begin.to_string(), duration, format!("{count} {what} lost"), pid.to_string(), place, all));
                }
                Item::Error(error) => panic!("{error}"),
            }
        }
        read.sort();
        expected.sort();
        prop_assert_eq!(read.len(), expected.len());
        for (read, expected) in read.iter().zip(&expected) {
            prop_assert_eq!(read, expected);
        }
        for row in &answers[2] {
            let name = names.get(string(&row[0]).unwrap());
            // An empty name is omitted.
            let read = string(&row[1]).unwrap_or_default();
            prop_assert!(name.is_none_or(|name| name == read), "{:?} {:?}", row, name);
        }
    }
}

/// Writes a trace of two threads on two CPUs, with events that begin and end, and a channel without
/// thread ids.
fn write_threads(directory: &Path) {
    let path = directory.join("prog");
    let mut trace =
        TraceWriter::create(&path, info("prog", 50, Some("h")), clock(1_000_000_000)).unwrap();
    let contexts = contexts("@1 u32 vtid;c8[16] procname");
    trace.declare_class(Scope::Cpu).unwrap();
    trace.declare_contexts(Scope::Cpu, &contexts).unwrap();
    let names = [
        "f:entry",
        "f:exit",
        "p:lock_req",
        "p:lock_acq",
        "p:tick",
        "p:open_req",
        "p:open",
        "p:half_begin",
    ];
    for (n, name) in (1..).zip(names) {
        trace
            .declare(&event(&format!("{n} {name} 6 x64 at")))
            .unwrap();
    }
    let mut channel = StreamChannel::new("main", 1);
    channel.set_contexts();
    let other = StreamChannel::new("other", 2);
    let mut streams = [0, 1].map(|cpu| trace.stream(&channel, StreamOwner::Cpu(cpu)).unwrap());
    let mut without = trace.stream(&other, StreamOwner::Cpu(0)).unwrap();
    let base = 1_000_000;
    for (cpu, time, thread, name, at) in [
        (0, 1, 50, "f:entry", 0xa),
        (1, 2, 51, "f:entry", 0xb),
        (0, 3, 50, "f:entry", 0xc),
        (1, 4, 50, "p:lock_req", 1),
        (0, 5, 51, "p:tick", 0),
        (1, 6, 50, "p:lock_acq", 1),
        (1, 7, 50, "f:exit", 0xc),
        (0, 8, 51, "f:exit", 0xb),
        // The end of the first is missing, and so is the beginning of the second.
        (0, 9, 50, "p:open_req", 0),
        (1, 10, 50, "f:exit", 0xa),
        (0, 11, 50, "p:open", 0),
        // The other half of this one is not an event of the trace.
        (0, 12, 51, "p:half_begin", 0),
        // A slice without an end.
        (1, 13, 51, "p:open_req", 0),
    ] {
        let mut context = [0; 20];
        context[..4].copy_from_slice(&u32::to_ne_bytes(thread));
        let comm = if thread == 50 { "first" } else { "second" };
        context[4..][..comm.len()].copy_from_slice(comm.as_bytes());
        let id = 1 + names.iter().position(|known| *known == name).unwrap() as u16;
        streams[cpu]
            .event(id, base + time, &context, &u64::to_ne_bytes(at))
            .unwrap();
    }
    for (time, id) in [(20, 1), (21, 2)] {
        without.event(id, base + time, &[], &[0; 8]).unwrap();
    }
    for stream in streams.iter_mut().chain([&mut without]) {
        stream.finish().unwrap();
    }
}

/// Begin and end events of a thread make a slice, whichever CPU's ring has them. Missing ends are
/// inferred.
///
/// Requirements: E8
#[test]
fn perfetto_has_slices_of_threads() {
    let directory = tempfile::tempdir().unwrap();
    write_threads(directory.path());
    let threads = "select tid, thread.name, pid, process.name from thread join process using (upid) where pid > 0";
    let at = "select s.id, a.key, a.int_value from slice s join args a using (arg_set_id) where a.key glob 'debug.at*'";
    let answers = ask(directory.path(), &[], &[SLICES, threads, at]);
    let start = 1_700_000_000_000_000_000i64;
    let slice = |row: &Vec<Value>| {
        let of = |n: usize| string(&row[n]).unwrap_or("-");
        let ts = of(0).parse::<i64>().unwrap() - start;
        format!("{ts} {} {} {} {} {}", of(1), of(2), of(3), of(5), of(6))
    };
    let read: Vec<_> = answers[0].iter().map(slice).collect();
    // Time, duration, name, depth, thread, and track.
    let mut expected = [
        "1 9 f 0xA 0 50 -",
        "2 6 f 0xB 0 51 -",
        "3 4 f 0xC 1 50 -",
        "4 2 p:lock 2 50 -",
        "5 0 p:tick 1 51 -",
        "9 1 p:open 1 50 -",
        "11 0 p:open 0 50 -",
        "12 0 p:half_begin 0 51 -",
        "13 -1 p:open 0 51 -",
        "20 0 f:entry 0 - CPU 0",
        "21 0 f:exit 0 - CPU 0",
    ];
    let by_time = |line: &&str| line.split(' ').next().unwrap().parse::<i64>().unwrap();
    expected.sort_by_key(by_time);
    assert_eq!(read, expected);
    let mut threads: Vec<_> = answers[1]
        .iter()
        .map(|row| {
            row.iter()
                .map(|cell| string(cell).unwrap_or("-"))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    threads.sort();
    assert_eq!(threads, ["50 first 50 prog", "51 second 50 prog"]);
    // If ends are not selected, beginnings are instants.
    let answers = ask(directory.path(), &["-e", "f:entry,lock_req"], &[SLICES]);
    let read: Vec<_> = answers[0].iter().map(slice).collect();
    assert_eq!(read.len(), 5);
    assert!(
        read.iter()
            .all(|line| line.contains(" 0 f:entry 0 ") || line.contains(" 0 p:lock_req 0 ")),
        "{read:?}"
    );
}

/// A root span has a track, its children are in it or below it, tracks are used again, and flows
/// lead to the threads of a span and to a span that follows.
///
/// Requirements: B1, E8
#[test]
fn perfetto_has_trees_of_spans() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    trace.request((100, 51), [1, 0], "/a");
    trace.enter((110, 51), true, 1);
    trace.query((120, 51), [2, 1], "items");
    // At the same time as the other one.
    trace.query((130, 51), [3, 1], "users");
    trace.exit((140, 51), true, 1);
    // Another request at the same time.
    trace.request((150, 53), [4, 0], "/b");
    trace.follows((155, 53), true, [4, 1]);
    trace.close((160, 51), false, 2);
    trace.close((170, 51), false, 3);
    trace.enter((180, 52), true, 1);
    trace.status((185, 52), 1, 404);
    trace.status((186, 52), 1, 200);
    trace.exit((190, 52), true, 1);
    trace.close((200, 52), true, 1);
    // On the track of the first one.
    trace.request((210, 51), [1, 0], "/c");
    // It outlives its parent.
    trace.query((220, 51), [5, 1], "late");
    trace.close((230, 51), true, 1);
    trace.close((240, 51), false, 5);
    // Its end is lost.
    trace.request((250, 51), [1, 0], "/d");
    trace.request((260, 51), [1, 0], "/e");
    trace.close((270, 53), true, 4);
    trace.close((280, 51), true, 1);
    trace.finish();
    let slices = "select s.ts, s.dur, s.name, s.depth, t.id, t.parent_id, p.name, \
                  extract_arg(s.arg_set_id, 'debug.path'), extract_arg(s.arg_set_id, 'debug.table'), \
                  extract_arg(s.arg_set_id, 'debug.status') \
                  from slice s join track t on s.track_id = t.id left join track p on t.parent_id = p.id \
                  where t.name in ('shop:request', 'shop:query') order by s.ts, s.id";
    let flows = "select o.ts, o.name, i.ts, i.name from flow join slice o on o.id = slice_out \
                 join slice i on i.id = slice_in order by 1, 3";
    let answers = ask(directory.path(), &[], &[slices, flows]);
    let mut tracks: Vec<String> = Vec::new();
    let read: Vec<_> = answers[0]
        .iter()
        .map(|row| {
            let of = |n: usize| string(&row[n]).unwrap_or("-").to_owned();
            let mut number = |id: String| {
                let known = tracks.iter().position(|known| *known == id);
                known.unwrap_or_else(|| {
                    tracks.push(id);
                    tracks.len() - 1
                })
            };
            let track = number(of(4));
            let ts = of(0).parse::<i64>().unwrap() - START;
            let fields = format!("{} {} {}", of(7), of(8), of(9));
            format!(
                "{ts} {} {} {} {track} in {} {fields}",
                of(1),
                of(2),
                of(3),
                of(6)
            )
        })
        .collect();
    // Time, duration, name, depth, track, and the track above.
    assert_eq!(
        read,
        [
            "100 100 shop:request 0 0 in - /a - 200",
            "120 40 shop:query 1 0 in - - items -",
            "130 40 shop:query 0 1 in shop:request - users -",
            "150 120 shop:request 0 2 in - /b - -",
            "155 0 followed 2 0 in - - - -",
            "155 0 follows 1 2 in - - - -",
            "210 20 shop:request 0 0 in - /c - -",
            "220 10 shop:query 1 0 in - - late -",
            "250 10 shop:request 0 0 in - /d - -",
            "260 20 shop:request 0 0 in - /e - -",
        ]
    );
    let flows: Vec<_> = answers[1]
        .iter()
        .map(|row| {
            let of = |n: usize| string(&row[n]).unwrap_or("-").to_owned();
            let ts = |n: usize| of(n).parse::<i64>().unwrap() - START;
            format!("{} {} → {} {}", ts(0), of(1), ts(2), of(3))
        })
        .collect();
    assert_eq!(
        flows,
        [
            "100 shop:request → 110 shop:request",
            "110 shop:request → 180 shop:request",
            "155 followed → 155 follows",
        ]
    );
}

/// Processes of several hosts have the host's name. Those with one process id stay apart.
#[test]
fn perfetto_tells_hosts_apart() {
    let directory = tempfile::tempdir().unwrap();
    for (host, pids) in [("web", [50, 51]), ("db", [50, 52])] {
        for pid in pids {
            let path = directory.path().join(format!("{host}-{pid}"));
            let info = info("prog", pid, Some(host));
            let mut trace = TraceWriter::create(&path, info, clock(1_000_000_000)).unwrap();
            trace.declare_class(Scope::Thread).unwrap();
            trace.declare(&event("1 t:n 6 u64 n")).unwrap();
            let channel = StreamChannel::new("main", 1);
            let owner = StreamOwner::Thread {
                tid: pid,
                begin: 1,
                ring: 0,
            };
            let mut stream = trace.stream(&channel, owner).unwrap();
            stream
                .event(1, 1_000_000 + u64::from(pid), &[], &[0; 8])
                .unwrap();
            stream.finish().unwrap();
        }
    }
    let processes = "select pid, name from process where pid > 0 order by pid";
    let tracks = "select t.name, p.name from slice s join track t on s.track_id = t.id \
                  join track p on t.parent_id = p.id order by p.name";
    let answers = ask(directory.path(), &[], &[processes, tracks]);
    let rows = |answer: &Vec<Vec<Value>>| -> Vec<String> {
        let row = |row: &Vec<Value>| {
            [string(&row[0]), string(&row[1])]
                .map(|cell| cell.unwrap_or("-"))
                .join(" ")
        };
        answer.iter().map(row).collect()
    };
    assert_eq!(rows(&answers[0]), ["51 web: prog", "52 db: prog"]);
    assert_eq!(
        rows(&answers[1]),
        ["thread 50 db: prog (50)", "thread 50 web: prog (50)"]
    );
}

/// The trace processor rejects an invalid trace, so its silence means something.
#[test]
fn the_trace_processor_complains() {
    let directory = tempfile::tempdir().unwrap();
    twelve(directory.path(), 1);
    let count = &["select count(*) from slice"];
    let answers = ask(directory.path(), &[], count);
    assert_eq!(answers[0], [[Value::from("12")]]);
    let file = directory.path().join("out");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 40]).unwrap();
    let said = std::panic::catch_unwind(|| usertrace_testing::tools::trace_processor(&file, count));
    assert!(said.map_or(true, |answers| answers[0] != [[Value::from("12")]]));
}

/// Spans are written as they end, and the others are counted.
#[test]
fn otlp_counts_what_it_leaves_out() {
    let directory = tempfile::tempdir().unwrap();
    write_threads(directory.path());
    let output = command(directory.path(), &["export", "--otlp", "-o", "out", "."]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(
        said,
        "usertrace: spans that are left out: 1 without a begin, 1 without an end\n"
    );
    let lines = fs::read_to_string(directory.path().join("out")).unwrap();
    let messages = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let scopes = messages.map(|message| message["resourceSpans"][0]["scopeSpans"][0].clone());
    let spans: Vec<_> = scopes
        .flat_map(|scope| scope["spans"].as_array().unwrap().clone())
        .collect();
    let mut names: Vec<_> = spans.iter().map(|span| string(&span["name"])).collect();
    names.sort_unstable();
    assert_eq!(names, ["f", "f", "f", "lock", "open"].map(Some));
}
