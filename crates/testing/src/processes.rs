//! Processes with any events, channels and contexts, and their traces.

use std::path::Path;

use proptest::prelude::*;
use usertrace_ctf::{
    Clock, StreamChannel, StreamOwner, StreamWriter, TraceInfo, TraceOrigin, TraceWriter, Version,
};
use usertrace_ring::schema::{Contexts, Description, Event};
use usertrace_sys::Scope;
use usertrace_sys::uapi::LttClockSync;

use super::fields::{Type, types};

/// 2023-11-14 22:13:20 UTC.
pub const START: i64 = 1_700_000_000_000_000_000;

/// A pseudo-random sequence, reproducible by its seed.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub fn info(name: &str, pid: u32, hostname: Option<&str>) -> TraceInfo {
    TraceInfo {
        trace_name: "a trace".into(),
        origin: TraceOrigin::Process {
            name: name.into(),
            pid,
            process: pid.into(),
        },
        hostname: hostname.map(str::to_owned),
    }
}

pub fn clock(freq: u64) -> Clock {
    clock_at(freq, 1_000_000)
}

pub fn clock_at(freq: u64, cycles: u64) -> Clock {
    let sync = LttClockSync {
        cycles,
        monotonic: 5_000_000_000,
        realtime: START as u64,
        freq,
    };
    // Some clocks have the id of the machine's boot.
    let boot = (freq % 2 == 1).then_some(*b"boot of a host..");
    Clock::new(&sync, &[]).of_boot(boot)
}

/// Begins a trace of the process `shop`, with a stream of CPU 0 whose events have these contexts.
///
/// # Panics
/// If the contexts or events are not valid, or the trace cannot be written.
pub fn shop_trace(
    path: &Path,
    host: &str,
    contexts: &str,
    events: &[&str],
) -> (TraceWriter, StreamWriter) {
    let info = info("shop", 7, Some(host));
    let mut trace = TraceWriter::create(path, info, clock(1_000_000_000)).unwrap();
    let stream = stream_with_contexts(&mut trace, contexts, events);
    (trace, stream)
}

/// Declares contexts and events in a trace, and begins a stream of them.
///
/// # Panics
/// As for [`shop_trace`].
pub fn stream_with_contexts(
    trace: &mut TraceWriter,
    contexts: &str,
    events: &[&str],
) -> StreamWriter {
    trace
        .declare_contexts(Scope::Cpu, &self::contexts(contexts))
        .unwrap();
    for line in events {
        trace.declare(&event(line)).unwrap();
    }
    let mut channel = StreamChannel::new("main", 1);
    channel.set_contexts();
    trace.stream(&channel, StreamOwner::Cpu(0)).unwrap()
}

/// Begins a trace of machine `host` in this directory. Its clock counts ns, and is 0 at [`START`].
pub fn trace_in_ns(path: &Path, trace_name: &str, origin: TraceOrigin) -> TraceWriter {
    let info = TraceInfo {
        trace_name: trace_name.into(),
        origin,
        hostname: Some("host".into()),
    };
    let sync = LttClockSync {
        realtime: START as u64,
        freq: 1_000_000_000,
        ..LttClockSync::default()
    };
    TraceWriter::create(path, info, Clock::new(&sync, &[])).unwrap()
}

/// Writes a trace of one event with these payloads, in the order of time.
///
/// # Panics
/// If the trace cannot be written.
pub fn write_events<'a>(path: &Path, event: &Event, payloads: impl Iterator<Item = &'a [u8]>) {
    let origin = TraceOrigin::Process {
        name: "prog".into(),
        pid: 7,
        process: 7,
    };
    let mut trace = trace_in_ns(path, "t", origin);
    trace.declare_class(Scope::Cpu).unwrap();
    trace.declare(event).unwrap();
    let channel = StreamChannel::new("main", 1);
    let mut stream = trace.stream(&channel, StreamOwner::Cpu(0)).unwrap();
    for (time, payload) in (0..).zip(payloads) {
        stream.event(event.id, time, &[], payload).unwrap();
    }
    stream.finish().unwrap();
}

/// The contexts of a channel that a line describes.
///
/// # Panics
/// If the line describes no contexts.
pub fn contexts(line: &str) -> Contexts {
    match Description::parse(line.as_bytes()) {
        Ok(Description::Contexts(contexts)) => contexts,
        other => panic!("{line}: {other:?}"),
    }
}

pub fn event(line: &str) -> Event {
    Event::parse(line.as_bytes()).unwrap()
}

/// A process of a test.
#[derive(Clone, Debug)]
pub struct Process {
    pub name: String,
    pub hostname: Option<String>,
    pub freq: u64,
    /// The clock's start value, in cycles.
    pub start: u64,
    /// Types of the fields of its events; below, those of contexts.
    pub events: Vec<Vec<Type>>,
    pub contexts: Vec<Type>,
    /// Scope of each channel, and whether it has contexts.
    pub channels: Vec<(u32, bool)>,
    pub seed: u64,
}

pub fn processes() -> impl Strategy<Value = Process> {
    (
        "[ -~ü]{0,12}",
        prop::option::of("[a-z\"\\\\?]{0,6}"),
        (
            prop::sample::select(&[1_000_000_000, 2_500_000_000, 3_000_000_017, 24_000_000, 999]),
            // After some months, a clock has more digits than are exact in floating point.
            prop::sample::select(&[1_000_000, 0x10_0000_0000_0003, 12_345_678_901_234_567]),
        ),
        prop::collection::vec(prop::collection::vec(types(), 0..5), 1..4),
        prop::collection::vec(types(), 1..4),
        prop::collection::vec((0..4u32, any::<bool>()), 1..4),
        any::<u64>(),
    )
        .prop_map(
            |(name, hostname, (freq, start), events, contexts, channels, seed)| Process {
                name,
                hostname,
                freq,
                start,
                events,
                contexts,
                channels,
                seed,
            },
        )
}

pub fn describe(types: &[Type]) -> String {
    let fields = types.iter().enumerate();
    let fields: Vec<_> = fields
        .map(|(n, kind)| format!("{} f{n}", kind.describe()))
        .collect();
    fields.join(";")
}

/// Writes random events to at most 3 streams of each channel.
pub fn write(directory: &Path, pid: u32, process: &Process) {
    write_as(directory, pid, process, Version::V1_8, None);
}

/// Like [`write`], with a version of CTF and a UUID.
pub fn write_as(
    directory: &Path,
    pid: u32,
    process: &Process,
    version: Version,
    uuid: Option<[u8; 16]>,
) {
    let random = &mut random(process.seed);
    let hostname = process.hostname.as_deref();
    let (info, clock) = (
        info(&process.name, pid, hostname),
        clock_at(process.freq, process.start),
    );
    let start = clock.start();
    let path = directory.join(format!("p-{pid}"));
    let mut trace = match uuid {
        None => TraceWriter::create(&path, info, clock).unwrap(),
        Some(uuid) => TraceWriter::resume(&path, info, clock, uuid, Vec::new()).unwrap(),
    };
    trace.set_version(version);
    for (n, types) in process.events.iter().enumerate() {
        let line = format!("{} p:e-{n} 6 {}", n + 1, describe(types));
        trace.declare(&event(line.trim_end())).unwrap();
    }
    for (index, (scope, has_contexts)) in (1..).zip(&process.channels) {
        let mut channel = StreamChannel::new(&format!("channel{index}"), index);
        let scope_of = [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid][*scope as usize];
        trace.declare_class(scope_of).unwrap();
        if *has_contexts {
            let line = format!("@{index} {}", describe(&process.contexts));
            trace.declare_contexts(scope_of, &contexts(&line)).unwrap();
            channel.set_contexts();
        }
        for ring in 0..1 + (random() % 3) as u32 {
            let of = match scope_of {
                Scope::Cpu => StreamOwner::Cpu(ring),
                Scope::Thread => StreamOwner::Thread {
                    ring,
                    tid: ring * 7,
                    begin: start + u64::from(ring),
                },
                Scope::Global => StreamOwner::Process(ring),
                Scope::MmCid => StreamOwner::MmCid(ring),
            };
            let mut stream = trace.stream(&channel, of).unwrap();
            let mut time = start + random() % 4;
            for _ in 0..random() % 30 {
                // Times are often equal to others.
                time += random() % 3 * (random() % 2_000) * (random() % 3);
                let id = random() % process.events.len() as u64;
                let value = |types: &[Type], random: &mut _| -> Vec<u8> {
                    types
                        .iter()
                        .flat_map(|kind| kind.any_value(random))
                        .collect()
                };
                let contexts = match has_contexts {
                    true => value(&process.contexts, random),
                    false => Vec::new(),
                };
                let payload = value(&process.events[id as usize], random);
                stream
                    .event(id as u16 + 1, time, &contexts, &payload)
                    .unwrap();
                match random() % 12 {
                    0 => stream.flush().unwrap(),
                    1 => stream.discard(1 + random() % 3),
                    2 => stream.overwrite(random() % 3).unwrap(),
                    _ => {}
                }
            }
            stream.finish().unwrap();
        }
    }
}
