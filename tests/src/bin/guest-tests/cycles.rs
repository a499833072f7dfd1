//! Thousands of traces are created and removed while programs write to them (A9, C8).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Instant;

use usertrace::Outcome;
use usertrace_sys::crash::{LTT_CRASH_BUFFER, LTT_CRASH_TRACE};
use usertrace_testing::wait;
use usertrace_tests::accounting::Cgroup;
use usertrace_tests::areas::SLOTS;
use usertrace_tests::child::{Child, Link};
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{attach, write};
use usertrace_tests::guest::scaled;
use usertrace_tests::reader::Reader;
use usertrace_tests::shared::Shared;
use usertrace_tests::{directory, parse};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    ten_thousand_traces_come_and_go_under_eight_writers,
    slot_is_reused_only_after_its_writers_left,
];

const THREADS: usize = 8;
/// How many traces. The debug kernel does a twentieth by default: see [`scaled`].
const CYCLES: u64 = 10_000;
/// Traces before the first count: the kernel keeps caches and pages of the directory.
const WARM_UP: u64 = 64;
/// Traces that exist at the same time.
const AT_ONCE: usize = 3;
/// Of so many traces, one is read before it is removed.
const SAMPLE: u64 = 50;
/// The inaccuracy of a control group's charges. A leak of one page in ten cycles would exceed it.
const SLACK: u64 = CYCLES / 10;

/// Reads a trace that is being written, and returns how many events it has. All must be intact and
/// of known threads, and each thread's must be in order in each ring.
fn sample(trace: &Trace) -> u64 {
    let mut count = 0;
    for path in trace.consumer_files("main") {
        let rings = parse::rings(&Consumer::open(&path));
        for ring in &rings {
            let mut last = [None; THREADS];
            for &(thread, number) in &ring.events {
                let last = &mut last[thread as usize];
                assert!(
                    last.is_none_or(|last| number > last),
                    "thread {thread}: {number} after {last:?}"
                );
                *last = Some(number);
            }
            count += ring.events.len() as u64;
        }
    }
    count
}

/// Requirements: A9, C8
fn ten_thousand_traces_come_and_go_under_eight_writers() {
    let mut child = Child::spawn(come_and_go);
    // The test takes longer than one wait may.
    while child.link.try_receive().is_some() {}
    child.join();
}

/// Tracing would not continue if something was damaged.
fn check_that_tracing_works(written: &[Shared; THREADS]) {
    let last = Trace::started("last");
    let had = |thread: usize| written[thread].get().load(Ordering::Relaxed);
    let had: [u64; THREADS] = std::array::from_fn(had);
    wait::until("all write to a new trace", || {
        written
            .iter()
            .zip(had)
            .all(|(written, had)| written.get().load(Ordering::Relaxed) > had)
    });
    // The thread that was given the buffer makes the files, and may be the last one to go on.
    wait::until("its events are read", || sample(&last) > 0);
}

/// Starts a child whose threads write until `stop` is set, and count what was recorded.
fn writers(stop: &Shared, written: &[Shared; THREADS]) -> Child {
    let mut child = Child::spawn(|link| {
        attach();
        // The writers leave time for the creation of traces.
        // SAFETY: no memory is concerned.
        unsafe { libc::nice(19) };
        link.send(0);
        std::thread::scope(|scope| {
            for (thread, written) in written.iter().enumerate() {
                scope.spawn(move || {
                    let mut number = 0u64;
                    while stop.get().load(Ordering::Relaxed) == 0 {
                        if write(thread as u32, number) == Outcome::Recorded {
                            written.get().fetch_add(1, Ordering::Relaxed);
                        }
                        number += 1;
                    }
                });
            }
        });
    });
    child.link.receive();
    child
}

fn come_and_go(link: &mut Link) {
    let stop = Shared::new();
    let written: [Shared; THREADS] = std::array::from_fn(|_| Shared::new());
    // The group is charged for the program's buffers and for the traces themselves.
    let group = Cgroup::enter("cycles");
    let child = writers(&stop, &written);
    let mut traces: VecDeque<Trace> = VecDeque::new();
    let (mut slots, mut sampled, mut before) = (0u16, 0, None);
    let begun = Instant::now();
    // The debug kernel takes many minutes for all: USERTRACE_TEST_SCALE=1 asks for them.
    let cycles = scaled(CYCLES);
    // Several are looked at, however few there are.
    let sample_each = SAMPLE.min(cycles.div_ceil(4));
    for cycle in 0..WARM_UP + cycles {
        if cycle % sample_each == 0 {
            link.send(cycle);
        }
        if cycle == WARM_UP {
            traces.clear();
            before = Some((group.kernel_pages(), settled()));
        }
        let trace = Trace::create(&format!("cycle-{cycle}"));
        trace.set_geometry("main", 4096, 4);
        trace.set_geometry("control", 4096, 2);
        trace.start();
        traces.push_back(trace);
        if traces.len() > AT_ONCE
            && let Some(old) = traces.pop_front()
        {
            if cycle % sample_each == 0 {
                // The trace is removed while they write to it. (Its rings may be full by now.)
                wait::until("they write to it", || {
                    let rings = old.stats().rings;
                    rings.iter().any(|ring| ring.channel == "main")
                });
                slots |= 1 << old.stats().slot;
                sampled += sample(&old);
            }
            old.stop();
            old.try_remove().expect("rmdir");
        }
    }
    let took = begun.elapsed();
    traces.clear();
    let (pages, entries) = before.expect("there was a warm-up");
    // Processes of earlier tests may have gone meanwhile.
    let left = settled();
    assert!(
        left.iter()
            .all(|(kind, count)| Some(count) <= entries.get(kind)),
        "entries in the crash directory: {left:?}, before {entries:?}"
    );
    wait::until("the pages are given back", || {
        group.kernel_pages() < pages + SLACK
    });
    assert!(slots.count_ones() > 1, "several slots: {slots:#x}");
    let events: u64 = written
        .iter()
        .map(|written| written.get().load(Ordering::Relaxed))
        .sum();
    assert!(
        sampled > 0 && events > cycles,
        "{sampled} of {events} events were looked at"
    );
    check_that_tracing_works(&written);
    stop.get().store(1, Ordering::Relaxed);
    child.join();
    println!(
        "{cycles} cycles took {:.1} s; {events} events, {sampled} of them looked at",
        took.as_secs_f64()
    );
}

/// How many traces take the one free slot in turn.
const SUCCESSORS: u64 = 60;

/// Writers of shared rings use no restartable sequence, and can be interrupted between two of their
/// stores. A writer that was still in the slot when the next trace takes it would store into that
/// trace's rings.
///
/// Requirements: A9
fn slot_is_reused_only_after_its_writers_left() {
    let stop = Shared::new();
    let child = {
        let mut child = Child::spawn(|link| {
            attach();
            link.send(0);
            std::thread::scope(|scope| {
                for thread in 0..THREADS as u32 {
                    let stop = &stop;
                    scope.spawn(move || {
                        for number in 0.. {
                            if stop.get().load(Ordering::Relaxed) != 0 {
                                break;
                            }
                            write(thread, number);
                        }
                    });
                }
            });
        });
        child.link.receive();
        child
    };
    // All slots but one.
    let others: Vec<_> = (1..SLOTS)
        .map(|n| Trace::create(&format!("other-{n}")))
        .collect();
    let cycles = scaled(SUCCESSORS);
    let (mut events, mut slot) = (0u64, None);
    for cycle in 0..cycles {
        let scope = if cycle % 2 == 0 { "global" } else { "thread" };
        let trace = Trace::started_of("successor", scope, 4096, 2);
        assert!(
            slot.replace(trace.stats().slot)
                .is_none_or(|before| before == trace.stats().slot),
            "one slot"
        );
        let path = wait::until_some("the process has a buffer", || {
            trace.consumer_files("main").pop()
        });
        let mut reader = Reader::open(&path).expect("a consumer file");
        let mut last = BTreeMap::new();
        let mut seen = 0;
        wait::until("they write to it", || {
            reader.drain(|ring, (thread, number)| {
                let before = last.insert((ring, thread), number);
                assert!(
                    thread < THREADS as u32 && before.is_none_or(|before| number > before),
                    "{scope}, ring {ring}: thread {thread} wrote {number} after {before:?}"
                );
                seen += 1;
            });
            seen > 1000
        });
        events += seen;
        trace.try_remove().expect("rmdir");
    }
    drop(others);
    stop.get().store(1, Ordering::Relaxed);
    child.join();
    println!("{cycles} traces in one slot, {events} events");
}

/// The entries of the crash directory without any trace, after all deferred work is done.
fn settled() -> BTreeMap<u32, usize> {
    let no_traces = |entries: &BTreeMap<u32, usize>| {
        !entries.contains_key(&LTT_CRASH_TRACE) && !entries.contains_key(&LTT_CRASH_BUFFER)
    };
    wait::until_some("the directory has no trace", || {
        Some(directory::entries()).filter(no_traces)
    })
}
