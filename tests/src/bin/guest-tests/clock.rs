//! The clock of a trace: the processor's counter if that is valid, or else `CLOCK_MONOTONIC` (E3).
//!
//! A guest that is booted with `tsc=unstable` uses `CLOCK_MONOTONIC`. Under load, the kernel may
//! itself decide that an emulated counter is unstable.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use usertrace::Outcome;
use usertrace_ctf::Clock;
use usertrace_sys::uapi::{LTT_CLOCK_MONOTONIC, LTT_CLOCK_TSC, LTT_FILE_CLOCK_UNSTABLE};
use usertrace_tests::child::Child;
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::Trace;
use usertrace_tests::event;
use usertrace_tests::program;
use usertrace_tests::reader::Reader;
use usertrace_tests::traces::Traces;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![time_stamps_agree_with_the_clock];

/// Tests for a guest whose time-stamp counter is unstable.
pub(crate) const ON_AN_UNSTABLE_CLOCK: &[Case] = cases![
    unstable_clock_is_not_used,
    fallback_does_not_use_an_unstable_clock,
];

const SCOPES: [&str; 4] = ["cpu", "mm_cid", "thread", "global"];
const THREADS: u32 = 3;
const EVENTS: u64 = 1000;
/// Realtime and monotonic clock may be adjusted meanwhile, and the counter's frequency is measured.
const TOLERANCE_NS: i64 = 50_000_000;

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_nanos() as i64
}

/// Whether the kernel takes the time from the counter.
fn is_counter_valid() -> bool {
    let clocks = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let clocks = fs::read_to_string(clocks).expect("sysfs");
    clocks.split_whitespace().any(|clock| clock == "tsc")
}

/// Requirements: E3
fn time_stamps_agree_with_the_clock() {
    if is_counter_valid() {
        check_times(LTT_CLOCK_TSC);
    } else {
        check_times(LTT_CLOCK_MONOTONIC);
    }
}

/// Requirements: E3
fn unstable_clock_is_not_used() {
    assert!(
        !is_counter_valid(),
        "this guest is not one with tsc=unstable"
    );
    check_times(LTT_CLOCK_MONOTONIC);
}

/// Events from threads that write at the same time, in rings of each scope.
fn check_times(expected: u32) {
    for scope in SCOPES {
        let trace = Trace::started_of(&format!("clock-{scope}"), scope, 65536, 8);
        let before = now_ns();
        let mut child = Child::spawn(|link| {
            event::attach();
            std::thread::scope(|threads| {
                for thread in 0..THREADS {
                    threads.spawn(move || {
                        for number in 0..EVENTS {
                            assert_eq!(event::write(thread, number), Outcome::Recorded);
                        }
                    });
                }
            });
            link.send(0);
            link.receive();
        });
        child.link.receive();
        let after = now_ns();
        let path = trace
            .consumer_files("main")
            .pop()
            .expect("the child's file");
        let info = Consumer::open(&path).info();
        assert_eq!(info.clock, expected, "{scope}");
        assert_eq!(info.flags & LTT_FILE_CLOCK_UNSTABLE, 0, "{scope}");
        let clock = Clock::new(&info.start, &[info.now]);
        let mut last = [0; 1 << 8];
        let mut numbers = [0; THREADS as usize];
        let mut reader = Reader::open(&path).expect("a reader");
        let each = |ring: usize, time: u64, (thread, number): (u32, u64)| {
            assert!(last[ring] <= time, "{scope}: {} {time}", last[ring]);
            last[ring] = time;
            let at = clock.unix_ns(time);
            let range = before - TOLERANCE_NS..=after + TOLERANCE_NS;
            assert!(range.contains(&at), "{scope}: {at} {range:?}");
            numbers[thread as usize] += u64::from(number < EVENTS);
        };
        reader.look_with_times(each, |ring, kind| {
            panic!("{scope}: {kind:?} in ring {ring}")
        });
        assert_eq!(numbers, [EVENTS; THREADS as usize], "{scope}");
        child.link.send(0);
        child.join();
    }
}

/// The fallback does not use the processor's counter either if the kernel does not trust it.
///
/// Requirements: E3
fn fallback_does_not_use_an_unstable_clock() {
    assert!(
        !is_counter_valid(),
        "this guest is not one with tsc=unstable"
    );
    let traces = Traces::new();
    let before = now_ns();
    let mut numbered = Command::new(program::path("numbered"));
    numbered.args(["--events", "1000"]).stdout(Stdio::null());
    let status = traces.of(&mut numbered).status();
    assert!(status.expect("it starts").success());
    let after = now_ns();
    let read = traces.read();
    let directory = traces.processes().pop().expect("the program's trace");
    let metadata = fs::read_to_string(directory.join("metadata")).expect("metadata");
    assert!(metadata.contains("freq = 1000000000;"), "{metadata}");
    assert_eq!(read.events.len(), 1000);
    let range = before - TOLERANCE_NS..=after + TOLERANCE_NS;
    for event in &read.events {
        assert!(
            range.contains(&event.time.cast_signed()),
            "{event:?} {range:?}"
        );
    }
}
