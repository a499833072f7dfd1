//! Events that the library writes: they are recorded and counted, and survive any death (A3, A5,
//! A10, C8, E7, E8, F1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use usertrace::Outcome;
use usertrace_sys::uapi::{LTT_LOST_WORD, LttSubbuf};
use usertrace_testing::babeltrace;
use usertrace_testing::seccomp;
use usertrace_testing::wait::{self, spin};
use usertrace_tests::accounting::Cgroup;
use usertrace_tests::areas::Areas;
use usertrace_tests::child::{self, Child, exit};
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, RECORD_LEN, attach, by_thread, check_prefix};
use usertrace_tests::guest::scaled;
use usertrace_tests::parse;
use usertrace_tests::program;
use usertrace_tests::random::Random;
use usertrace_tests::shared::Shared;
use usertrace_tests::{control, cpu};

use crate::{Case, breakpoint, cases};

pub(crate) const CASES: &[Case] = cases![
    event_makes_no_system_call,
    sigkill_loses_no_committed_event,
    death_at_any_instruction_loses_no_committed_event,
    fork_child_writes_to_its_own_buffers,
    child_forked_before_the_trace_is_traced,
    each_active_trace_gets_the_event,
    running_program_follows_start_and_stop,
    full_ring_discards_and_counts,
    record_saves_exactly_the_written_events,
    threads_register_rseq_if_the_c_library_does_not,
    vfork_child_leaves_its_parents_rings_alone,
    rings_are_merged_by_time,
    discarded_events_are_reported,
    recorded_program_keeps_its_exit_status,
    program_at_its_memory_limit_continues,
];

/// Forbids all system calls except the one that exits: any other kills this process.
fn forbid_system_calls() {
    let end = (libc::SYS_exit_group as u32, libc::SECCOMP_RET_ALLOW);
    seccomp::filter(&[end], libc::SECCOMP_RET_KILL_PROCESS);
}

/// Requirements: A3
fn event_makes_no_system_call() {
    let count = scaled(1_000_000);
    let trace = Trace::started_with("million", 4 << 20, 16);
    // First, show that the filter kills.
    child::run_to_death(Signal::SIGSYS, || {
        forbid_system_calls();
        // SAFETY: it takes no arguments.
        unsafe { libc::getppid() };
    });
    child::run(|| {
        cpu::pin(0);
        attach();
        forbid_system_calls();
        for number in 0..count {
            if event::write(0, number) != Outcome::Recorded {
                exit(2);
            }
        }
        exit(0);
    });
    let rings = parse::rings(&parse::of_the_dead(&trace));
    let numbers: Vec<_> = rings[0].events.iter().map(|event| event.1).collect();
    assert_eq!(check_prefix(&numbers), count);
    assert!(rings.iter().all(|ring| ring.lost == 0));
    assert!(rings[1..].iter().all(|ring| ring.events.is_empty()));
}

/// Requirements: A10
fn sigkill_loses_no_committed_event() {
    let mut random = Random::new();
    let mut totals = (0, 0);
    for round in 0..scaled(100) {
        let trace = Trace::started_with("killed", 65536, 256);
        let witness = Shared::new();
        let mut child = Child::spawn(|_| {
            attach();
            for number in 0.. {
                match event::write(0, number) {
                    // The event is committed before it is counted.
                    Outcome::Recorded => witness.get().store(number + 1, Ordering::Release),
                    // The ring is full.
                    _ => break,
                }
            }
            loop {
                std::hint::spin_loop();
            }
        });
        // Kills most of them while they write, some during their start.
        if round % 5 != 0 {
            while witness.get().load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
        }
        spin(Duration::from_micros(random.below(10_000)));
        child.signal(Signal::SIGKILL);
        child.wait();
        let seen = witness.get().load(Ordering::Acquire);
        let written = parse::numbers(&trace);
        let recorded = check_prefix(&written);
        // The last one may have been committed and not yet counted; there is no other that could
        // be.
        assert!(
            recorded == seen || recorded == seen + 1,
            "{recorded} recorded, {seen} witnessed, round {round}, {random:?}"
        );
        totals.0 += recorded;
        totals.1 += u64::from(recorded > 0);
    }
    assert!(
        totals.1 > 0 && totals.0 > totals.1,
        "they did write: {totals:?}"
    );
}

/// An emulator checks for interrupts only between blocks of instructions, so a random kill never
/// comes within a block. A breakpoint does.
///
/// Requirements: A10
fn death_at_any_instruction_loses_no_committed_event() {
    /// Events of a sub-buffer.
    const EVENTS: u64 = ((4096 - size_of::<LttSubbuf>()) / RECORD_LEN) as u64;
    let mut reached = 0;
    for sequence in breakpoint::sequences() {
        let mut instructions = 0;
        for address in sequence.instructions() {
            let trace = Trace::started_with("breakpoint", 4096, 4);
            let witness = Shared::new();
            let mut child = Child::spawn(|_| {
                cpu::pin(0);
                attach();
                // Each time it dies somewhere else; and there is always another sub-buffer to be
                // begun.
                let before = instructions * 7 % EVENTS;
                for number in 0..2 * EVENTS + 3 {
                    if number == before {
                        breakpoint::wait_for_tracer();
                    }
                    if event::write(0, number) != Outcome::Recorded {
                        exit(2);
                    }
                    witness.get().store(number + 1, Ordering::Release);
                }
                exit(0);
            });
            if !breakpoint::run_to(&mut child, address) {
                if address == sequence.start {
                    // This event does not execute the instruction.
                    break;
                }
                // This event takes another path.
                continue;
            }
            child.signal(Signal::SIGKILL);
            child.wait();
            let seen = witness.get().load(Ordering::Acquire);
            let recorded = check_prefix(&parse::numbers(&trace));
            assert!(
                recorded == seen || recorded == seen + 1,
                "{recorded} recorded, {seen} witnessed, {} bytes into {sequence:?}",
                address - sequence.start
            );
            instructions += 1;
        }
        reached += u64::from(instructions > 1);
    }
    assert!(
        reached >= 2,
        "events and beginnings of sub-buffers: {reached}"
    );
}

/// Requirements: A5
fn fork_child_writes_to_its_own_buffers() {
    let trace = Trace::started("forks");
    child::run(|| {
        attach();
        for number in 0..10 {
            assert_eq!(event::write(0, number), Outcome::Recorded);
        }
        child::run(|| {
            for number in 0..20 {
                assert_eq!(event::write(1, number), Outcome::Recorded);
            }
        });
        for number in 10..30 {
            assert_eq!(event::write(0, number), Outcome::Recorded);
        }
    });
    wait::until("both are dead", || {
        let stats = trace.stats();
        stats.processes.len() == 2 && stats.processes.iter().all(|p| p.state == "dead")
    });
    let mut counts = Vec::new();
    for file in trace.consumer_files("main") {
        let rings = parse::rings(&Consumer::open(&file));
        let threads = by_thread(rings.into_iter().flat_map(|ring| ring.events));
        assert_eq!(threads.len(), 1, "no process has another's events");
        for (thread, numbers) in threads {
            counts.push((thread, check_prefix(&numbers)));
        }
    }
    counts.sort_unstable();
    assert_eq!(counts, [(0, 30), (1, 20)]);
}

/// Requirements: A5
fn child_forked_before_the_trace_is_traced() {
    child::run(|| {
        attach();
        let mut child = Child::spawn(|link| {
            link.receive();
            for number in 0..5 {
                assert_eq!(event::write(1, number), Outcome::Recorded);
            }
            link.send(0);
            link.receive();
        });
        let trace = Trace::started("later");
        assert_eq!(event::write(0, 0), Outcome::Recorded);
        child.link.send(0);
        child.link.receive();
        assert_eq!(trace.stats().processes.len(), 2);
        child.link.send(0);
        child.join();
    });
}

/// Requirements: A7
fn each_active_trace_gets_the_event() {
    let (all, some) = (Trace::started("all"), Trace::started("some"));
    child::run(|| {
        attach();
        for number in 0..100 {
            match number {
                30 => some.stop(),
                60 => some.start(),
                _ => {}
            }
            assert_eq!(event::write(0, number), Outcome::Recorded);
        }
    });
    assert_eq!(check_prefix(&parse::numbers(&all)), 100);
    let expected: Vec<_> = (0..30).chain(60..100).collect();
    assert_eq!(parse::numbers(&some), expected);
}

/// Requirements: C8
fn running_program_follows_start_and_stop() {
    child::run(|| {
        attach();
        assert_eq!(event::write(0, 0), Outcome::Off, "there is no trace");
        let trace = Trace::create("follows");
        assert_eq!(event::write(0, 0), Outcome::Off, "it is not started");
        // The signal arrives when the call that starts the trace returns.
        trace.start();
        assert_eq!(event::write(0, 0), Outcome::Recorded);
        trace.stop();
        assert_eq!(event::write(0, 99), Outcome::Off);
        trace.start();
        assert_eq!(event::write(0, 1), Outcome::Recorded);
        let consumer = Consumer::open(&trace.consumer_files("main")[0]);
        let rings = parse::rings(&consumer);
        let threads = by_thread(rings.into_iter().flat_map(|ring| ring.events));
        assert_eq!(threads[&0], [0, 1]);
        drop(trace);
        assert_eq!(event::write(0, 99), Outcome::Off);
        // A new trace, perhaps in the same slot, starts empty.
        let next = Trace::started("next");
        for number in 0..3 {
            assert_eq!(event::write(0, number), Outcome::Recorded);
        }
        let consumer = Consumer::open(&next.consumer_files("main")[0]);
        let rings = parse::rings(&consumer);
        let threads = by_thread(rings.into_iter().flat_map(|ring| ring.events));
        assert_eq!(threads[&0], [0, 1, 2]);
    });
}

/// How many events a ring without a reader holds.
fn capacity(subbuf_size: usize, subbuf_count: usize) -> u64 {
    ((subbuf_size - size_of::<LttSubbuf>()) / RECORD_LEN * subbuf_count) as u64
}

/// Requirements: D3
fn full_ring_discards_and_counts() {
    for (size, count) in [(4096, 2), (8192, 4)] {
        let room = capacity(size, count);
        let written = 2 * room + 7;
        let trace = Trace::started_with("full", size as u32, count as u32);
        child::run(|| {
            cpu::pin(1);
            attach();
            for number in 0..written {
                let expected = if number < room {
                    Outcome::Recorded
                } else {
                    Outcome::Lost
                };
                assert_eq!(event::write(0, number), expected, "{number}");
            }
        });
        let rings = parse::rings(&parse::of_the_dead(&trace));
        let numbers: Vec<_> = rings[1].events.iter().map(|event| event.1).collect();
        assert_eq!(check_prefix(&numbers), room, "the oldest ones");
        assert_eq!(rings[1].lost, written - room);
        let stats = trace.stats();
        let main: Vec<_> = stats
            .rings
            .iter()
            .filter(|ring| ring.channel == "main")
            .collect();
        assert_eq!(main.len(), 1);
        assert_eq!((main[0].ring, main[0].lost), (1, written - room));
    }
}

/// The output of `usertrace record`.
pub(crate) struct Recorded {
    directory: TempDir,
    summary: Value,
    stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) status: std::process::ExitStatus,
}

impl Recorded {
    pub(crate) fn trace(&self) -> PathBuf {
        self.directory.path().join("trace")
    }

    /// The sum of a number over all processes of the summary.
    pub(crate) fn sum(&self, what: &str) -> u64 {
        self.summary["processes"]
            .as_array()
            .unwrap_or_else(|| panic!("no processes in {}", self.summary))
            .iter()
            .map(|process| process[what].as_u64().expect("a number"))
            .sum()
    }

    /// The counts that `numbered` printed: recorded and lost.
    fn said(&self) -> (u64, u64) {
        let text = String::from_utf8_lossy(&self.stdout);
        let words: Vec<_> = text.split_whitespace().collect();
        match words[..] {
            ["recorded", recorded, "lost", lost] => (
                recorded.parse().expect("a number"),
                lost.parse().expect("a number"),
            ),
            _ => panic!("numbered said {text:?}; {}", self.stderr),
        }
    }
}

/// Runs a program under `usertrace record` with these options.
pub(crate) fn record(options: &[&str], program: &Path, arguments: &[&str]) -> Recorded {
    let traces = || {
        let entries = fs::read_dir(control::ROOT).expect("a directory");
        entries
            .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()))
            .count()
    };
    let before = traces();
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("summary.json");
    let output = Command::new(program::path("usertrace"))
        .arg("record")
        .arg("--output")
        .arg(directory.path().join("trace"))
        .arg(format!("--json={}", json.display()))
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("usertrace runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = fs::read_to_string(&json).unwrap_or_else(|e| panic!("no summary: {e}; {stderr}"));
    assert_eq!(traces(), before, "a trace that it made is gone");
    Recorded {
        directory,
        summary: serde_json::from_str(&text).expect("JSON"),
        stdout: output.stdout,
        stderr,
        status: output.status,
    }
}

/// Requirements: F1
fn record_saves_exactly_the_written_events() {
    let numbered = program::path("numbered");
    for count in [0, 1, 1000, scaled(50_000)] {
        let recorded = record(&[], &numbered, &["--events", &count.to_string()]);
        assert!(recorded.status.success(), "{}", recorded.stderr);
        assert_eq!(recorded.said(), (count, 0));
        assert_eq!((recorded.sum("events"), recorded.sum("lost")), (count, 0));
        assert_eq!((recorded.sum("holes"), recorded.sum("damaged")), (0, 0));
        if count == 0 {
            // Without a process, babeltrace2 finds no trace.
            continue;
        }
        let read = babeltrace::read(&recorded.trace());
        assert_eq!(read.discarded, 0);
        let numbers: Vec<_> = read.events.iter().map(|event| event.numbered().1).collect();
        assert_eq!(check_prefix(&numbers), count, "in order");
    }
}

/// The C library does not register rseq here. The library's own registration has the length that
/// the kernel wants. This kernel then enforces the rules of its optimised mode, and kills programs
/// that break them.
///
/// Requirements: A3
fn threads_register_rseq_if_the_c_library_does_not() {
    let count = scaled(20_000);
    let numbered = program::path("numbered");
    let arguments = [
        "GLIBC_TUNABLES=glibc.pthread.rseq=0",
        numbered.to_str().expect("a plain path"),
        "--threads",
        "2",
        "--events",
        &count.to_string(),
    ];
    let recorded = record(&[], Path::new("/usr/bin/env"), &arguments);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    assert_eq!(recorded.said(), (2 * count, 0));
    assert_eq!(recorded.sum("events"), 2 * count);
    let read = babeltrace::read(&recorded.trace());
    let numbers: Vec<_> = read.events.iter().map(|event| event.numbered()).collect();
    for thread in 0..2 {
        let own = numbers.iter().filter(|event| event.0 == thread);
        let own: Vec<_> = own.map(|event| event.1).collect();
        assert_eq!(check_prefix(&own), count);
    }
}

/// A `vfork` child runs on its parent's memory and thread-local storage, and the kernel does not
/// restart its sequences.
///
/// Requirements: F2
fn vfork_child_leaves_its_parents_rings_alone() {
    let trace = Trace::started("vfork");
    child::run(|| {
        cpu::pin(0);
        attach();
        let ok = event::write_around_vfork(Outcome::Lost);
        exit(i32::from(!ok));
    });
    let rings = parse::rings(&parse::of_the_dead(&trace));
    let numbers: Vec<_> = rings[0].events.iter().map(|event| event.1).collect();
    assert_eq!(check_prefix(&numbers), 20);
    assert_eq!(rings.iter().map(|ring| ring.lost).sum::<u64>(), 5);
}

/// Requirements: E8
fn rings_are_merged_by_time() {
    let count = scaled(500);
    let arguments = [
        "--threads",
        "2",
        "--in-turn",
        "--events",
        &count.to_string(),
    ];
    let recorded = record(&[], &program::path("numbered"), &arguments);
    assert_eq!(recorded.said(), (2 * count, 0));
    let read = babeltrace::read(&recorded.trace());
    assert_eq!((read.events.len() as u64, read.discarded), (2 * count, 0));
    // The threads took turns, each on its CPU, so there is only one right order.
    let expected = (0..count).flat_map(|number| [(0, number), (1, number)]);
    for (event, expected) in read.events.iter().zip(expected) {
        assert_eq!(event.numbered(), expected);
        assert_eq!(event.field("cpu_id"), u64::from(expected.0));
    }
}

/// Requirements: E7
fn discarded_events_are_reported() {
    let numbered = program::path("numbered");
    let mut lost_any = 0;
    for threads in ["1", "2"] {
        let recorded = record(
            &["--subbuf-size", "4096", "--subbuf-count", "2"],
            &numbered,
            &[
                "--threads",
                threads,
                "--events",
                &scaled(50_000).to_string(),
            ],
        );
        let (accepted, lost) = recorded.said();
        let written = scaled(50_000) * threads.parse::<u64>().expect("a number");
        assert_eq!(accepted + lost, written);
        assert_eq!(
            (recorded.sum("events"), recorded.sum("lost")),
            (accepted, lost)
        );
        let read = babeltrace::read(&recorded.trace());
        assert_eq!((read.events.len() as u64, read.discarded), (accepted, lost));
        // No event comes twice, and each thread's are in order.
        let mut last = [None; 2];
        for event in &read.events {
            let (thread, number) = event.numbered();
            let last = &mut last[thread as usize];
            assert!(last.is_none_or(|last| number > last));
            *last = Some(number);
        }
        lost_any += lost;
    }
    assert!(lost_any > 0, "nothing was discarded, so nothing was tested");
}

/// Requirements: F2
fn recorded_program_keeps_its_exit_status() {
    let shell = Path::new("/bin/sh");
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill -15 $$", 143),
    ] {
        let recorded = record(&[], shell, &["-c", script]);
        assert_eq!(
            recorded.status.code(),
            Some(code),
            "{script}: {}",
            recorded.stderr
        );
    }
    let recorded = record(&[], shell, &["-c", "echo out; echo err >&2; cat"]);
    assert_eq!(recorded.stdout, b"out\n");
    assert!(recorded.stderr.contains("err\n"), "{}", recorded.stderr);
}

/// Requirements: F2
fn program_at_its_memory_limit_continues() {
    // The second one is reached where there are tables for what there is no memory for.
    let lost = [4 << 20, 7 << 19].map(reach_memory_limit);
    assert!(lost[1] > 0);
}

/// Writes to more pages than there is memory for, and returns how many were lost.
fn reach_memory_limit(limit: u64) -> usize {
    const PAGES: usize = 4096;
    let trace = Trace::started_with("limit", 1 << 20, 16);
    let group = Cgroup::new("limit");
    let (reached, go_on) = (Shared::new(), Shared::new());
    let mut child = Child::spawn(|_| {
        let slot = Areas::map(0).must_next();
        slot.switch().expect("its files");
        let ring = slot.ring(1, 0);
        // Allocates the page tables. They are the program's own memory, for which the kernel would
        // kill it.
        for page in 0..PAGES {
            assert_eq!(ring.read(4096 * page), 0);
        }
        for word in [&reached, &go_on] {
            word.get().store(0, Ordering::Release);
        }
        group.join();
        group.allow_more(Some(limit));
        // The program must not need other memory from here on.
        for page in 0..PAGES {
            ring.write(4096 * page + page % 4096, 42);
        }
        reached.get().store(1, Ordering::Release);
        while go_on.get().load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        // The pages can still be written, also those that were lost.
        for page in 0..PAGES {
            ring.write(4096 * page, 43);
        }
    });
    wait::until("it has written all or died", || {
        reached.get().load(Ordering::Acquire) == 1 || !child.is_alive()
    });
    assert!(child.is_alive(), "{:?}", child.wait());
    let pages = trace.stats().pages() as usize;
    assert!(
        (64..PAGES / 2).contains(&pages),
        "{pages} pages of {limit} bytes"
    );
    // The reader has what there was memory for; the rest is zeros, or says that it was lost, and
    // nobody else's.
    let consumer = Consumer::open(&trace.consumer_files("main")[0]);
    let view = consumer.map();
    let (mut there, mut lost) = (0, 0);
    for page in 0..PAGES {
        let byte = view.read(4096 * page + page % 4096);
        if byte == LTT_LOST_WORD.to_ne_bytes()[page % 8] && byte != 0 {
            lost += 1;
        } else if byte == 42 {
            there += 1;
        } else {
            assert_eq!(byte, 0, "page {page}");
        }
    }
    assert!(there <= pages && there + 64 > pages, "{there} of {pages}");
    group.allow_more(None);
    go_on.get().store(1, Ordering::Release);
    child.join();
    lost
}
