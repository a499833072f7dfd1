//! Our events on the fallback, with its daemons reading: rings of threads, which are shared, and
//! rings of CPUs, from fresh pages on. A process chooses its rings once, so a new process of this
//! program measures each kind.

use std::env;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use usertrace_bench::{Event, EventWriter, FirstLap, Rows, median, ratios};

use super::contest::{Contestant, contest, pin, timed};
use super::floor::Floors;
use super::{Kind, MAIN, ours};

/// The ring of all threads that came when there were no more of their own.
const COMMON: &str = "shared ring of several threads, fallback";
/// More threads than the fallback has rings of their own for.
const THREADS: usize = 64;

/// Environment variable: what this process has to measure.
const CHILD: &str = "USERTRACE_BENCH_CHILD";

/// Sub-buffers for [`measure`], each as large as LTTng-UST's here: the daemon is woken for each.
const LARGE: [u64; 2] = [1 << 20, 8];
/// And for [`first`]: those that a program has which asks for none, but more of them.
const SMALL: [u64; 2] = [64 << 10, 32];

/// Events through so many of them as the daemon can leave free: all but the one that it may still
/// be in.
const LAP: u64 = (SMALL[1] - 1) * ((SMALL[0] - 64) / MAIN.len);

/// Does what [`measure`] and [`first`] run this program for, and says whether it was that.
pub(crate) fn is_child(rounds: usize) -> bool {
    let Ok(what) = env::var(CHILD) else {
        return false;
    };
    let text = if what == "first" {
        serde_json::to_string(&laps())
    } else {
        serde_json::to_string(&rows(&what, rounds))
    };
    assert_eq!(lost(), 0, "the rings were large enough");
    println!("{}", text.expect("plain data"));
    true
}

/// Our events into the fallback's rings. With those of the fake kernel they are compared by way of
/// the floor, which both processes measure.
pub(crate) fn measure(rows: &mut Vec<Event>) {
    let ours = |rows: &[Event], threads| {
        let mut same = rows.iter().filter(|row| {
            row.who == EventWriter::Usertrace && row.payload == MAIN.name && row.threads == threads
        });
        same.next().map_or(1.0, |row| row.floors)
    };
    for (rings, how) in [
        ("thread", "shared ring of a thread, fallback"),
        ("thread", COMMON),
        ("cpu", "per-CPU ring, fallback"),
    ] {
        for mut row in run::<Vec<Event>>(rings, LARGE, how, "") {
            row.ours = row.floors / ours(rows, row.threads);
            rows.push(row);
        }
    }
}

/// The first lap through fresh buffers, in so many processes. `prefault`: what `USERTRACE_PREFAULT`
/// says.
pub(crate) fn first(rounds: usize, prefault: &str) -> FirstLap {
    let laps: Vec<[f64; 2]> = (0..rounds)
        .map(|_| run("cpu", SMALL, "first", prefault))
        .collect();
    let fresh: Vec<f64> = laps.iter().map(|laps| laps[0]).collect();
    let later: Vec<f64> = laps.iter().map(|laps| laps[1]).collect();
    FirstLap {
        ns: median(&fresh),
        later_ns: median(&later),
        ratio: median(&ratios(&fresh, &later)),
    }
}

fn run<T: DeserializeOwned>(rings: &str, [size, count]: [u64; 2], what: &str, prefault: &str) -> T {
    let output = Command::new(env::current_exe().expect("the kernel knows what runs"))
        .args(env::args_os().skip(1))
        .env(CHILD, what)
        .env("USERTRACE_BACKEND", "fast")
        .env("USERTRACE_OUTPUT", "null")
        .env("USERTRACE_RINGS", rings)
        .env("USERTRACE_PREFAULT", prefault)
        .env("USERTRACE_SUBBUF_SIZE", size.to_string())
        .env("USERTRACE_SUBBUF_COUNT", count.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("this program can be run");
    assert!(output.status.success(), "{what}: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("what the child says")
}

/// The floor and ours, in one thread and in two.
fn rows(how: &str, rounds: usize) -> Vec<Event> {
    attached();
    if how == COMMON {
        take_rings();
    }
    let floors = Floors::new();
    let Kind {
        floor, ours, name, ..
    } = *MAIN;
    let batch = MAIN.batch();
    let mut rows = Rows::default();
    for threads in [1, 2] {
        let contestants = [
            // SAFETY: a contestant's batches have different threads.
            Contestant::new(batch, |thread| unsafe { floor(&floors, thread, batch) })
                .prepared(rest),
            Contestant::new(batch, |_| ours(batch)).prepared(rest),
        ];
        let names = vec![
            (EventWriter::Floor, String::new()),
            (EventWriter::Usertrace, how.into()),
        ];
        let times = contest(&contestants, threads, rounds);
        rows.add(names, name, threads, &times);
    }
    let mut events = rows.into_events();
    // The floor is in the report already.
    events.retain(|event| event.who == EventWriter::Usertrace);
    events
}

/// Nanoseconds of an event in the first lap, and later.
fn laps() -> [f64; 2] {
    attached();
    pin(0);
    let lap = || {
        let time = timed(|| ours::numbers(LAP));
        // Long enough for a daemon that has just been started.
        thread::sleep(Duration::from_millis(200));
        time.as_secs_f64() * 1e9 / LAP as f64
    };
    let fresh = lap();
    // This one comes through the sub-buffer that the first left out.
    lap();
    [fresh, lap()]
}

/// Leaves no ring to threads that come later.
fn take_rings() {
    let all = Arc::new(Barrier::new(THREADS + 1));
    for _ in 0..THREADS {
        let all = Arc::clone(&all);
        thread::spawn(move || {
            ours::numbers(1);
            all.wait();
            loop {
                thread::park();
            }
        });
    }
    all.wait();
}

fn attached() {
    let status = usertrace::status();
    assert_eq!(status, usertrace::Status::Attached, "{status}");
}

/// Lets the daemon read what was written: it must not be a race between the two. Before the floor's
/// turns, too, so that both come to a processor that has slept.
fn rest() {
    thread::sleep(Duration::from_millis(5));
}

fn lost() -> u64 {
    usertrace::stats().map(|trace| trace.lost).sum()
}
