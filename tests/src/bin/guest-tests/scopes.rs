//! Channels with rings per CPU, per concurrency id, per thread, or one per process; and events
//! without memory (A4, A8, A10, E3, F1, F2).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use usertrace::{Outcome, Status};
use usertrace_testing::babeltrace::{self, Printed};
use usertrace_testing::wait::{self, spin};
use usertrace_tests::child::{self, Child};
use usertrace_tests::control::{self, Trace};
use usertrace_tests::event::{self, check_prefix};
use usertrace_tests::guest::scaled;
use usertrace_tests::random::Random;
use usertrace_tests::shared::Shared;
use usertrace_tests::{cpu, program};

use crate::events::{Recorded, record};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    each_scope_records_exactly_the_written_events,
    sigkill_loses_no_committed_event_in_any_scope,
    rings_of_ended_threads_are_used_again,
    running_threads_keep_their_rings,
    rings_of_concurrency_ids_are_no_more_than_threads,
    vfork_child_leaves_rings_of_each_scope_alone,
    process_that_blocks_signals_follows_traces_of_each_scope,
    list_shows_each_scope,
    events_lost_for_lack_of_memory_are_reported,
];

const SCOPES: [&str; 4] = ["cpu", "mm_cid", "thread", "global"];

/// Rings that a thread can have for itself, and those that many share.
const OWN_RINGS: u32 = 48;

fn attach() {
    assert_eq!(usertrace::init(), Status::Attached);
}

fn gettid() -> u32 {
    nix::unistd::gettid().as_raw().cast_unsigned()
}

fn nr_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// Records a trace whose processes are gone.
fn read_by_record(trace: &Trace) -> Recorded {
    let recorded = record(&["--trace", trace.name()], Path::new("/bin/true"), &[]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    let nothing = ["holes", "damaged", "corrupted", "overwritten"];
    assert_eq!(nothing.map(|what| recorded.sum(what)), [0; 4]);
    recorded
}

/// The events of a recording in which nothing was discarded.
fn events(recorded: &Recorded) -> Vec<Printed> {
    if recorded.sum("events") == 0 {
        // Without a process, babeltrace2 finds no trace.
        return Vec::new();
    }
    let read = babeltrace::read(&recorded.trace());
    assert_eq!(read.discarded, 0);
    assert_eq!(read.events.len() as u64, recorded.sum("events"));
    read.events
}

/// The number by which an event's ring is known.
fn ring_of(scope: &str, event: &Printed) -> u64 {
    match scope {
        "cpu" => event.field("cpu_id"),
        "mm_cid" => {
            assert!(!event.fields.contains("cpu_id"), "{}", event.fields);
            event.field("mm_cid")
        }
        "thread" => event.field("tid"),
        _ => 0,
    }
}

/// Each thread's numbers, sorted. They must be in order in each ring.
fn by_thread(scope: &str, events: &[Printed]) -> BTreeMap<u32, Vec<u64>> {
    let mut last = BTreeMap::new();
    for event in events {
        let (thread, number) = event.numbered();
        let before = last.insert((ring_of(scope, event), thread), number);
        assert!(before.is_none_or(|before| before < number), "{event:?}");
    }
    event::by_thread(events.iter().map(Printed::numbered))
}

/// The numbers of the rings of `main` that are not empty.
fn used_rings(trace: &Trace) -> Vec<u32> {
    let rings = trace.stats().rings;
    let main = rings.iter().filter(|ring| ring.channel == "main");
    main.filter(|ring| ring.head > 0)
        .map(|ring| ring.ring)
        .collect()
}

/// The thread number of events of signal handlers.
const HANDLER: u32 = 1000;
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn trace_in_handler(_: libc::c_int) {
    // Only one of them at a time: the signal is blocked in its handler, and comes to one thread.
    let number = HANDLED.load(Ordering::Relaxed);
    if event::write(HANDLER, number) == Outcome::Recorded {
        HANDLED.store(number + 1, Ordering::Relaxed);
    }
}

/// Installs a handler that writes events.
fn handle(signal: libc::c_int) {
    // SAFETY: the handler writes events, which is async-signal-safe; the process is the test's own.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trace_in_handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let set = libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        assert_eq!(set, 0);
    }
}

/// Sends a signal to a thread of this process.
fn interrupt(thread: u32, signal: libc::c_int) {
    // SAFETY: the signal has a handler.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
    assert_eq!(sent, 0);
}

/// Blocks or unblocks a signal in the calling thread.
fn mask(how: libc::c_int, signal: libc::c_int) {
    // SAFETY: the calling thread's own mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, signal);
        assert_eq!(
            libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()),
            0
        );
    }
}

/// Requirements: E3
fn each_scope_records_exactly_the_written_events() {
    const THREADS: u32 = 3;
    let count = scaled(2000);
    for scope in SCOPES {
        let trace = Trace::started_of("scoped", scope, 65536, 64);
        let handled = Shared::new();
        child::run(|| {
            attach();
            // Only one thread handles the signals, which the others send until all have finished.
            mask(libc::SIG_BLOCK, libc::SIGUSR1);
            handle(libc::SIGUSR1);
            let interrupted = AtomicU32::new(0);
            let (begin, end) = (
                Barrier::new(THREADS as usize),
                Barrier::new(THREADS as usize),
            );
            std::thread::scope(|threads| {
                for thread in 0..THREADS {
                    let (interrupted, begin, end) = (&interrupted, &begin, &end);
                    threads.spawn(move || {
                        if thread == 0 {
                            interrupted.store(gettid(), Ordering::Relaxed);
                            mask(libc::SIG_UNBLOCK, libc::SIGUSR1);
                        }
                        begin.wait();
                        for number in 0..count {
                            assert_eq!(event::write(thread, number), Outcome::Recorded);
                            if thread != 0 && number % 16 == 0 {
                                interrupt(interrupted.load(Ordering::Relaxed), libc::SIGUSR1);
                            }
                        }
                        end.wait();
                        mask(libc::SIG_BLOCK, libc::SIGUSR1);
                    });
                }
            });
            handled
                .get()
                .store(HANDLED.load(Ordering::Relaxed), Ordering::Relaxed);
        });
        // Rings that were consumed to the end are not listed any more.
        let used = used_rings(&trace);
        let recorded = read_by_record(&trace);
        assert_eq!(recorded.sum("lost"), 0, "{scope}");
        let events = events(&recorded);
        let mut numbers = by_thread(scope, &events);
        let handlers = numbers.remove(&HANDLER).unwrap_or_default();
        let handled = handled.get().load(Ordering::Relaxed);
        assert_eq!(check_prefix(&handlers), handled, "{scope}");
        assert!(handled > 0, "no signal came");
        assert_eq!(numbers.len(), THREADS as usize, "{scope}");
        for numbers in numbers.values() {
            assert_eq!(check_prefix(numbers), count, "{scope}");
        }
        // A handler writes to the ring of the thread that it interrupts. No other two threads share
        // a ring of threads.
        let rings: BTreeSet<_> = events.iter().map(|event| ring_of(scope, event)).collect();
        match scope {
            "thread" => assert_eq!(rings.len(), THREADS as usize),
            "global" => assert_eq!(used, [0]),
            _ => assert_eq!(rings.len(), used.len()),
        }
    }
}

/// Requirements: A10
fn sigkill_loses_no_committed_event_in_any_scope() {
    const THREADS: usize = 2;
    let mut random = Random::new();
    for scope in SCOPES {
        for round in 0..scaled(4) {
            let trace = Trace::started_of("killed", scope, 16384, 8);
            let witness: [Shared; THREADS] = std::array::from_fn(|_| Shared::new());
            let mut child = Child::spawn(|_| {
                attach();
                let both = Barrier::new(THREADS);
                std::thread::scope(|threads| {
                    for (thread, witness) in (0..).zip(&witness) {
                        let both = &both;
                        threads.spawn(move || {
                            for number in 0.. {
                                match event::write(thread, number) {
                                    // The event is committed before it is counted.
                                    Outcome::Recorded => {
                                        witness.get().store(number + 1, Ordering::Release);
                                    }
                                    // The ring is full.
                                    _ => break,
                                }
                                // Wait before one thread fills a shared ring.
                                if number == 0 {
                                    both.wait();
                                }
                            }
                            loop {
                                std::hint::spin_loop();
                            }
                        });
                    }
                });
            });
            let seen = || {
                witness
                    .each_ref()
                    .map(|seen| seen.get().load(Ordering::Acquire))
            };
            // Both have a first event, and somebody is past the barrier: of a ring that they share
            // one may fill the rest.
            wait::until("both write", || {
                let seen = seen();
                seen.iter().all(|&seen| seen > 0) && seen.iter().any(|&seen| seen > 1)
            });
            spin(Duration::from_micros(random.below(500)));
            child.signal(Signal::SIGKILL);
            child.wait();
            let seen = seen();
            let recorded = read_by_record(&trace);
            // At most one unfinished event of each thread.
            assert!(recorded.sum("unfinished") <= THREADS as u64);
            let read = babeltrace::read(&recorded.trace());
            let numbers = by_thread(scope, &read.events);
            for (thread, &seen) in (0..).zip(&seen) {
                let recorded = check_prefix(&numbers[&thread]);
                assert!(
                    recorded == seen || recorded == seen + 1,
                    "{recorded} recorded, {seen} witnessed, {scope}, round {round}, {random:?}"
                );
            }
        }
    }
}

/// Waits until the kernel has forgotten a thread of this process, which was joined.
fn wait_for_end(thread: u32) {
    wait::until("a thread is gone", || {
        !Path::new(&format!("/proc/self/task/{thread}")).exists()
    });
}

/// Requirements: A8
fn rings_of_ended_threads_are_used_again() {
    const EACH: u64 = 3;
    let threads = 3 * OWN_RINGS;
    let trace = Trace::started_of("many", "thread", 4096, 16);
    child::run(|| {
        attach();
        for _ in 0..threads {
            let thread = std::thread::spawn(|| {
                for number in 0..EACH {
                    assert_eq!(event::write(gettid(), number), Outcome::Recorded);
                }
                gettid()
            });
            wait_for_end(thread.join().expect("a good end"));
        }
    });
    let used = used_rings(&trace);
    assert_eq!(used.len() as u32, OWN_RINGS);
    assert!(used.iter().all(|&ring| ring < OWN_RINGS), "{used:?}");
    let recorded = read_by_record(&trace);
    assert_eq!(recorded.sum("lost"), 0);
    let events = events(&recorded);
    assert_eq!(events.len() as u64, u64::from(threads) * EACH);
    for event in &events {
        assert_eq!(event.field("tid"), u64::from(event.numbered().0));
    }
    for numbers in by_thread("thread", &events).values() {
        // A thread id may have been reused.
        assert!((numbers.len() as u64).is_multiple_of(EACH));
    }
}

/// Requirements: A8
fn running_threads_keep_their_rings() {
    // More threads than rings.
    let threads = OWN_RINGS + 8;
    let trace = Trace::started_of("crowd", "thread", 4096, 16);
    child::run(|| {
        attach();
        let (wrote, again) = (
            Barrier::new(threads as usize),
            Barrier::new(threads as usize),
        );
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    assert_eq!(event::write(gettid(), 0), Outcome::Recorded);
                    wrote.wait();
                    assert_eq!(event::write(gettid(), 1), Outcome::Recorded);
                    again.wait();
                });
            }
        });
    });
    let used = used_rings(&trace);
    let own = used.iter().filter(|&&ring| ring < OWN_RINGS).count();
    assert_eq!(own as u32, OWN_RINGS);
    assert!(used.len() > own, "some had none of their own");
    let events = events(&read_by_record(&trace));
    assert_eq!(events.len() as u32, 2 * threads);
    let mut with_own = BTreeSet::new();
    for event in &events {
        let (thread, tid) = (event.numbered().0, event.field("tid"));
        // A shared ring has no thread id.
        assert!(tid == 0 || tid == u64::from(thread));
        if tid != 0 {
            with_own.insert(thread);
        }
    }
    assert_eq!(with_own.len() as u32, OWN_RINGS);
}

/// Requirements: E3
fn rings_of_concurrency_ids_are_no_more_than_threads() {
    let cpus = nr_cpus();
    let by_cpu = Trace::started_of("by-cpu", "cpu", 65536, 16);
    let by_cid = Trace::started_of("by-cid", "mm_cid", 65536, 16);
    child::run(|| {
        attach();
        for number in 0..100 {
            cpu::pin(number as usize % cpus);
            assert_eq!(event::write(0, number), Outcome::Recorded);
        }
    });
    assert_eq!(used_rings(&by_cpu).len(), cpus);
    assert_eq!(used_rings(&by_cid).len(), 1, "one thread has one ring");
    for (trace, scope) in [(&by_cpu, "cpu"), (&by_cid, "mm_cid")] {
        let events = events(&read_by_record(trace));
        assert_eq!(check_prefix(&by_thread(scope, &events)[&0]), 100);
        // Its ring is written in the order of time, wherever it ran.
        if scope == "mm_cid" {
            assert!(events.iter().map(|event| event.numbered().1).eq(0..100));
        }
    }
    drop((by_cpu, by_cid));
    // Two threads that run at the same time, and a third that waits for them.
    let trace = Trace::started_of("two", "mm_cid", 65536, 64);
    let count = scaled(2000);
    child::run(|| {
        attach();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let barrier = &barrier;
                scope.spawn(move || {
                    cpu::pin(thread as usize % cpus);
                    barrier.wait();
                    for number in 0..count {
                        if number % 50 == 0 {
                            cpu::pin((thread as usize + number as usize / 50) % cpus);
                        }
                        assert_eq!(event::write(thread, number), Outcome::Recorded);
                    }
                });
            }
        });
    });
    assert!(used_rings(&trace).len() <= 3);
    let numbers = by_thread("mm_cid", &events(&read_by_record(&trace)));
    for thread in 0..2 {
        assert_eq!(check_prefix(&numbers[&thread]), count);
    }
}

/// A `vfork` child cannot write to rings that need restartable sequences, and loses its events
/// there. Other rings take its events, except rings of threads.
///
/// Requirements: F2
fn vfork_child_leaves_rings_of_each_scope_alone() {
    for scope in SCOPES {
        let trace = Trace::started_of("vfork", scope, 65536, 16);
        let expected = match scope {
            "cpu" | "mm_cid" => Outcome::Lost,
            _ => Outcome::Recorded,
        };
        child::run(|| {
            attach();
            assert!(event::write_around_vfork(expected), "{scope}");
        });
        let recorded = read_by_record(&trace);
        let lost = if expected == Outcome::Lost { 5 } else { 0 };
        assert_eq!(
            (recorded.sum("events"), recorded.sum("lost")),
            (25 - lost, lost)
        );
        let read = babeltrace::read(&recorded.trace());
        let numbers = by_thread(scope, &read.events);
        assert_eq!(check_prefix(&numbers[&0]), 20, "{scope}");
    }
}

/// Requirements: A4
fn process_that_blocks_signals_follows_traces_of_each_scope() {
    /// More events than a sub-buffer of 4096 bytes holds.
    const PLENTY: u64 = 4096 / 24 + 1;
    for scope in SCOPES {
        child::run(|| {
            attach();
            // SAFETY: the calling thread's own mask.
            unsafe {
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
            }
            let trace = Trace::started_of("quiet", scope, 4096, 4);
            assert_eq!(event::write(0, 0), Outcome::Off, "{scope}");
            assert_eq!(usertrace::flush(), Ok(()));
            assert_eq!(event::write(0, 0), Outcome::Recorded, "{scope}");
            trace.stop();
            // At the next sub-buffer, or, where each event takes the slow path, with the next one.
            let still = (0..PLENTY).take_while(|&n| event::write(0, n) != Outcome::Off);
            let still = still.count() as u64;
            let most = if scope == "cpu" { PLENTY - 1 } else { 1 };
            assert!(still <= most, "{still} in {scope}");
            // Removed and created again, perhaps in the same slot.
            drop(trace);
            let next = Trace::started_of("next", scope, 4096, 4);
            assert_eq!(usertrace::flush(), Ok(()));
            assert_eq!(event::write(0, 0), Outcome::Recorded, "{scope}");
            assert_eq!(used_rings(&next).len(), 1);
        });
    }
}

/// Requirements: E3
fn list_shows_each_scope() {
    let list = |arguments: &[&str]| {
        let output = Command::new(program::path("usertrace"))
            .arg("list")
            .args(arguments)
            .output()
            .expect("usertrace runs");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for scope in SCOPES {
        let trace = Trace::started_of("listed", scope, 4096, 4);
        child::run(|| {
            attach();
            assert_eq!(event::write(0, 0), Outcome::Recorded);
        });
        wait::until("there is a file", || {
            !trace.consumer_files("main").is_empty()
        });
        let traces: serde_json::Value = serde_json::from_str(&list(&["--json"])).expect("JSON");
        let process = &traces[0]["processes"][0];
        let rings = match scope {
            "thread" => 64,
            "global" => 1,
            _ => nr_cpus() as u64,
        };
        assert_eq!(process["scope"], scope);
        assert_eq!(process["rings"], rings);
        assert_eq!(process["sunk"], 0);
        assert!(list(&[]).contains(&format!(" {rings} {scope} ")));
    }
}

/// A program continues without memory, and all tools report the lost events: the events before are
/// there, the holes are counted, and nothing counts as damaged.
///
/// Requirements: F2
fn events_lost_for_lack_of_memory_are_reported() {
    // More than the limit allows, on each kernel.
    let count = 20_000;
    for scope in SCOPES {
        let trace = Trace::started_of("sunk", scope, 65536, 16);
        let limit = control::Limit::new("limit_process");
        limit.set("262144");
        child::run(|| {
            attach();
            for number in 0..count {
                assert_ne!(event::write(0, number), Outcome::Off, "{scope}");
            }
        });
        drop(limit);
        let sunk = trace.stats().sunk;
        assert!(sunk > 0, "{scope}");
        let recorded = record(&["--trace", trace.name()], Path::new("/bin/true"), &[]);
        assert!(recorded.status.success(), "{}", recorded.stderr);
        assert_eq!(recorded.sum("sunk"), sunk, "{scope}");
        assert!(
            recorded.stderr.contains("found no memory"),
            "{}",
            recorded.stderr
        );
        assert_eq!(recorded.sum("damaged"), 0, "{scope}");
        assert!(recorded.sum("holes") > 0, "{scope}");
        let read = babeltrace::read(&recorded.trace());
        assert_eq!(read.events.len() as u64, recorded.sum("events"));
        assert!(read.discarded >= recorded.sum("holes") + recorded.sum("lost"));
        // No event comes twice, each ring is in order, and the first sub-buffer is complete.
        let numbers = &by_thread(scope, &read.events)[&0];
        assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[0] == 0);
        assert!((numbers.len() as u64) < count, "{scope}");
    }
}
