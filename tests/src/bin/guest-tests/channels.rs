//! Many traces with many channels, and short-lived processes: each event is in the right channel
//! (A7, E2-E5, D3).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use usertrace::Outcome;
use usertrace_testing::wait;
use usertrace_tests::child::Child;
use usertrace_tests::control::{self, Trace};
use usertrace_tests::cpu;
use usertrace_tests::event::attach;
use usertrace_tests::guest::{from_env, scaled};
use usertrace_tests::reader::Reader;
use usertrace_tests::shared::Shared;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![each_event_reaches_its_traces_and_memory_is_freed];

macro_rules! kinds {
    ($($kind:ident $name:literal),*) => {
        $(usertrace::tracepoint! {
            mod $kind {
                provider: "kind",
                name: $name,
                loglevel: Info,
                fields: { process: u32, number: u64 },
            }
        })*
    };
}

kinds!(a "a", b "b", c "c", d "d");

/// How many kinds of events there are. Each set of kinds has a trace.
const KINDS: usize = 4;
const TRACES: usize = 1 << KINDS;
/// Events of each process.
const EVENTS: u64 = 10;
const WRITERS: usize = 4;
/// How many bytes buffers may hold before the writers wait for the reader.
const HELD: u64 = 32 << 20;
/// How many short-lived processes there are. Each is in 16 traces, with 80 files, so thousands take
/// minutes: a variable asks for them.
const PROCESSES: u64 = 120;
const MORE: &str = "USERTRACE_TEST_PROCESSES";

/// The channel of each kind, its mode, and its scope. No mode blocks, because nobody reads while a
/// process runs.
const CHANNELS: [(&str, &str, &str); KINDS] = [
    ("main", "discard", "cpu"),
    ("flight", "overwrite", "thread"),
    ("global", "discard", "global"),
    ("blocks", "block", "cpu"),
];
/// The filter of each kind: names and patterns.
const PATTERNS: [&str; KINDS] = ["a", "kind:b", "no k?nd:c* !c c", "*d"];

fn write(kind: usize, process: u32, number: u64) -> Outcome {
    match kind {
        0 => usertrace::event!(a, process, number),
        1 => usertrace::event!(b, process, number),
        2 => usertrace::event!(c, process, number),
        _ => usertrace::event!(d, process, number),
    }
}

fn create(index: usize) -> Trace {
    let trace = Trace::create(&format!("set-{index}"));
    trace.write("filter", "0").expect("none");
    for (kind, (channel, mode, scope)) in CHANNELS.into_iter().enumerate() {
        if channel != "main" {
            std::fs::create_dir(trace.path().join(channel)).expect("a channel");
            trace
                .write(&format!("{channel}/filter"), PATTERNS[kind])
                .expect("a filter");
        }
        trace.write(&format!("{channel}/mode"), mode).expect("mode");
        trace
            .write(&format!("{channel}/scope"), scope)
            .expect("scope");
        trace.set_geometry(channel, 4096, 4);
        if index & 1 << kind != 0 {
            trace.write("filter", PATTERNS[kind]).expect("a filter");
        }
    }
    trace.set_geometry("control", 4096, 2);
    trace.start();
    trace
}

/// The numbers that were read from one trace: a bit for each, by process.
type NumbersRead = BTreeMap<u32, u64>;

/// Reads and consumes a trace. A dead process disappears when all of its channels are consumed.
fn read(trace: &Trace, index: usize, seen: &mut NumbersRead) {
    for ring in trace.stats().rings {
        assert_eq!(ring.lost, 0, "there was room for all");
        let Some(kind) = CHANNELS.iter().position(|at| at.0 == ring.channel) else {
            continue;
        };
        assert!(index & 1 << kind != 0, "{ring:?} in set {index}");
        if ring.head == ring.consumed {
            continue;
        }
        let path = trace.path().join(&ring.channel).join(&ring.name);
        // The file is created at the process's first switch, or at its death.
        let Ok(mut reader) = Reader::open(&path) else {
            continue;
        };
        reader.drain(|_, (process, number)| {
            assert_eq!(number as usize % KINDS, kind, "of set {index}");
            let numbers = seen.entry(process).or_default();
            assert_eq!(*numbers & 1 << number, 0, "{process}: {number} twice");
            *numbers |= 1 << number;
        });
    }
}

/// Requirements: A7, D3, E4, E5
fn each_event_reaches_its_traces_and_memory_is_freed() {
    wait::until("nothing is held", || control::memory().total == 0);
    let traces: Vec<_> = (0..TRACES).map(create).collect();
    let processes = from_env(MORE, scaled(PROCESSES));
    let next = Shared::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            Child::spawn(|_| {
                cpu::try_pin(writer);
                loop {
                    // Unread buffers must not reach the limits.
                    while control::memory().total > HELD {
                        std::thread::yield_now();
                    }
                    let process = next.get().fetch_add(1, Ordering::Relaxed);
                    if process >= processes {
                        break;
                    }
                    let child = Child::spawn(|_| {
                        attach();
                        for number in 0..EVENTS {
                            let kind = number as usize % KINDS;
                            let outcome = write(kind, process as u32, number);
                            assert_eq!(outcome, Outcome::Recorded);
                        }
                    });
                    child.join();
                }
            })
        })
        .collect();
    let mut seen = vec![NumbersRead::new(); TRACES];
    let mut read_all = || {
        for (index, trace) in traces.iter().enumerate() {
            read(trace, index, &mut seen[index]);
        }
    };
    while writers.iter().any(Child::is_alive) {
        read_all();
    }
    writers.into_iter().for_each(Child::join);
    wait::until("all was read", || {
        read_all();
        let mut traces = traces.iter();
        traces.all(|trace| trace.stats().processes.is_empty())
    });
    for (index, seen) in seen.iter().enumerate() {
        let wanted = (0..EVENTS).filter(|number| index & 1 << (number % KINDS as u64) != 0);
        let all = wanted.fold(0u64, |all, number| all | 1 << number);
        let whole = seen.values().filter(|numbers| **numbers == all).count();
        let expected = if all == 0 { 0 } else { processes as usize };
        assert_eq!(
            (whole, seen.len()),
            (expected, expected),
            "processes in set {index}"
        );
    }
    wait::until("the memory is back", || {
        let memory = control::memory();
        (memory.total, memory.dead) == (0, 0)
    });
}
