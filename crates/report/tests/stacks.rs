//! Profiles of any events, with any call stacks and modules: nothing is lost and nothing panics.

use std::path::Path;

use proptest::prelude::*;
use usertrace_ctf::{StreamChannel, StreamOwner, TraceOrigin};
use usertrace_reader::{Item, Reader, Selection};
use usertrace_report::export::{StackExport, StackFormat};
use usertrace_report::html::Report;
use usertrace_report::stacks::Weight;
use usertrace_sys::Scope;
use usertrace_testing::processes::{contexts, event, trace_in_ns};

/// Events by their ids, from 1 on. The first ones are about modules.
const EVENTS: [&str; 10] = [
    "lttng_ust_lib:load 13 x64 baddr;u64 memsz;str path",
    "lttng_ust_lib:build_id 13 x64 baddr;x8[] build_id",
    "lttng_ust_lib:unload 13 x64 baddr",
    "libc:malloc 14 u64 size;x64 ptr",
    "libc:realloc 14 x64 in_ptr;u64 size;x64 ptr",
    "libc:free 14 x64 ptr",
    "t:work_entry 6 u64 n",
    "t:work_exit 6 u64 n",
    "pthread:mutex_lock_req 14 x64 mutex;x64 thread",
    "pthread:mutex_lock_acq 14 x64 mutex;x64 thread;s32 result",
];
const MODULES: u16 = 3;

#[derive(Clone, Debug)]
struct Written {
    id: u16,
    thread: u32,
    stack: Vec<u64>,
    numbers: [u64; 3],
    passed: u64,
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..0x40,
        (0u64..4, 0u64..0x30).prop_map(|(base, offset)| base << 12 | offset),
        Just(u64::MAX),
        any::<u64>(),
    ]
}

fn written() -> impl Strategy<Value = Written> {
    let number = prop_oneof![address(), 0u64..5, Just(u64::MAX)];
    (
        1..=EVENTS.len() as u16,
        0u32..3,
        prop::collection::vec(address(), 0..20),
        [number.clone(), number.clone(), number],
        prop_oneof![0u64..3, Just(1 << 40)],
    )
        .prop_map(|(id, thread, stack, numbers, passed)| Written {
            id,
            thread,
            stack,
            numbers,
            passed,
        })
}

fn write(directory: &Path, events: &[Written]) {
    let of = TraceOrigin::Process {
        name: "any".into(),
        pid: 5,
        process: 5,
    };
    let mut trace = trace_in_ns(directory, "mine", of);
    let of_events = contexts("@1 u32 vtid;x64[] callstack");
    trace.declare_contexts(Scope::Cpu, &of_events).unwrap();
    for (id, line) in (1..).zip(EVENTS) {
        trace.declare(&event(&format!("{id} {line}"))).unwrap();
    }
    let mut channel = StreamChannel::new("main", 1);
    channel.set_contexts();
    let mut stream = trace.stream(&channel, StreamOwner::Cpu(0)).unwrap();
    let mut time = 0;
    for event in events {
        time += event.passed;
        let mut contexts = event.thread.to_ne_bytes().to_vec();
        contexts.extend((event.stack.len() as u32).to_ne_bytes());
        contexts.extend(event.stack.iter().flat_map(|address| address.to_ne_bytes()));
        let [first, second, third] = event.numbers.map(u64::to_ne_bytes);
        let payload = match event.id {
            1 => [&first[..], &second, b"/any/path\0"].concat(),
            2 => [&first[..], &2u32.to_ne_bytes(), b"id"].concat(),
            3 | 6..=8 => first.to_vec(),
            4 | 9 => [first, second].concat(),
            5 => [first, second, third].concat(),
            _ => [&first[..], &second, &third[..4]].concat(),
        };
        stream.event(event.id, time, &contexts, &payload).unwrap();
    }
    stream.finish().unwrap();
}

fn export(directory: &Path, format: StackFormat, by: Weight) -> Option<Vec<u8>> {
    let mut export = StackExport::new(format, by, true, None);
    let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => export.event(&event),
            other => panic!("{other:?}"),
        }
    }
    let mut out = Vec::new();
    export.finish(&mut out).ok().map(|_| out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The weights of all folded stacks are those of all events, whatever their stacks are, and
    /// each format and the page can be written.
    #[test]
    fn nothing_is_lost(events in prop::collection::vec(written(), 0..60)) {
        let directory = tempfile::tempdir().unwrap();
        let traces = directory.path().join("traces");
        write(&traces, &events);
        let of_program: Vec<_> = events.iter().filter(|event| event.id > MODULES).collect();
        for format in [StackFormat::Folded, StackFormat::Pprof, StackFormat::Firefox] {
            for by in Weight::ALL {
                let out = export(&traces, format, by);
                if (format, by) != (StackFormat::Folded, Weight::Events) {
                    continue;
                }
                let has_stack = |event: &&&Written| event.stack.iter().any(|&address| address != 0);
                let is_there = of_program.iter().any(|event| has_stack(&event));
                prop_assert_eq!(out.is_some(), is_there);
                let Some(out) = out else { continue };
                let lines = String::from_utf8(out).unwrap();
                let weights = lines.lines().map(|line| line.rsplit(' ').next().unwrap());
                let sum: u64 = weights.map(|weight| weight.parse::<u64>().unwrap()).sum();
                prop_assert_eq!(sum, of_program.len() as u64);
            }
        }
        let mut reader = Reader::open(std::slice::from_ref(&traces), Selection::default()).unwrap();
        let report = Report::collect(&mut reader, 1 << 20, None);
        report.write("any", &mut Vec::new()).unwrap();
    }
}
