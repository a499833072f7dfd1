//! Channels that count, in the kernel's buffers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use usertrace::Outcome;
use usertrace_ring::{CountGaps, CountKey, CountTable, CountValues, Frozen, Geometry, Positions};
use usertrace_testing::wait;
use usertrace_tests::areas::Areas;
use usertrace_tests::child::Child;
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::{self, Trace};
use usertrace_tests::cpu;
use usertrace_tests::event::{self, attach};
use usertrace_tests::guest::scaled;
use usertrace_tests::program;
use usertrace_tests::running::Running;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    counts_of_all_cpus_are_exact,
    garbage_in_counters_harms_no_other_process,
    tables_without_memory_lose_nothing_else,
    stat_follows_a_trace_until_it_is_removed,
];

/// A started trace that counts the event by its thread, with the values of its number.
fn counting(name: &str, subbuf_size: u32, subbuf_count: u32) -> Trace {
    let trace = Trace::create(name);
    fs::create_dir(trace.path().join("counts")).expect("a channel");
    for (file, text) in [
        ("mode", "count"),
        ("value", "number"),
        ("key", "thread"),
        ("filter", "numbered"),
    ] {
        let written = trace.write(&format!("counts/{file}"), text);
        written.unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    trace.set_geometry("counts", subbuf_size, subbuf_count);
    trace.start();
    trace
}

/// The counters of a process: count and values by key.
#[derive(Debug, Default)]
struct Counts {
    by_key: BTreeMap<CountKey, (u64, CountValues)>,
    gaps: CountGaps,
    lost: u64,
}

fn read(file: &Path) -> Counts {
    let consumer = Consumer::open(file);
    let channel = consumer.info().channel;
    let geometry = Geometry::new(channel.subbuf_size, channel.subbuf_count).expect("a geometry");
    let table = CountTable::new(geometry, channel.cell_size).expect("a table");
    let (view, len) = (consumer.map(), geometry.ring_size() as usize);
    let mut counts = Counts::default();
    for (cpu, positions) in consumer.positions().iter().enumerate() {
        counts.lost = counts.lost.wrapping_add(positions.lost);
        if positions.head == 0 {
            continue;
        }
        let bytes = view.copy(cpu * len, len);
        let none = Positions {
            head: 0,
            claimed: 0,
        };
        let gaps = table.read(&mut Frozen::new(&bytes, none), |cell| {
            let values = cell.values.expect("values");
            match counts.by_key.get_mut(&cell.key) {
                Some((count, sum)) => {
                    *count += cell.count;
                    sum.add(&values, false);
                }
                None => {
                    counts.by_key.insert(cell.key, (cell.count, values));
                }
            }
            Ok::<_, ()>(())
        });
        let gaps = gaps.expect("nothing stops it");
        counts.gaps.lost += gaps.lost;
        counts.gaps.damaged += gaps.damaged;
        counts.gaps.busy += gaps.busy;
    }
    counts
}

/// Checks that each thread has counted its numbers from 0 on, so many at least.
fn check(counts: &Counts, threads: u32, at_least: u64) {
    assert_eq!(counts.gaps, CountGaps::default());
    assert_eq!(counts.by_key.len() as u32, threads, "{:?}", counts.by_key);
    for thread in 0..threads {
        let (count, values) = &counts.by_key[&CountKey::Number(thread.into())];
        assert!(*count >= at_least, "{count} of {at_least}");
        assert_eq!(values.number(), *count);
        assert_eq!((values.min, values.max), (0, count - 1));
        assert_eq!(values.sum, (0..i128::from(*count)).sum());
    }
}

/// Threads on all CPUs of processes that end, or are killed in the middle.
///
/// Requirements: A10, C7
fn counts_of_all_cpus_are_exact() {
    let trace = counting("counted", 8192, 2);
    let (cpus, events) = (online(), scaled(20_000));
    let count = |events: u64| {
        attach();
        std::thread::scope(|scope| {
            for thread in 0..cpus {
                scope.spawn(move || {
                    cpu::pin(thread as usize);
                    for number in 0..events {
                        assert_eq!(event::write(thread, number), Outcome::Recorded);
                    }
                });
            }
        });
    };
    for _ in 0..3 {
        let child = Child::spawn(|_| count(events));
        let pid = child.pid();
        child.join();
        wait::until("it is dead", || !trace.consumer_files("counts").is_empty());
        let file = only_file(&trace);
        assert!(file.to_string_lossy().contains(&format!("/{pid}.")));
        let consumer = Consumer::open(&file);
        assert!(!consumer.ready().contains(PollFlags::POLLIN));
        let counts = read(&file);
        check(&counts, cpus, events);
        let sum: u64 = counts.by_key.values().map(|(count, _)| count).sum();
        assert_eq!((sum, counts.lost), (u64::from(cpus) * events, 0));
        // Nobody has recorded anything else.
        assert!(
            trace
                .stats()
                .rings
                .iter()
                .all(|ring| ring.channel != "main")
        );
        consumer.consume_all();
        assert!(consumer.ready().contains(PollFlags::POLLHUP));
        drop(consumer);
        wait::until("it is forgotten", || {
            trace.consumer_files("counts").is_empty()
        });
    }
    for _ in 0..5 {
        let mut child = Child::spawn(|link| {
            link.send(1);
            count(u64::MAX);
        });
        child.link.receive();
        wait::until("it counts", || !trace.consumer_files("counts").is_empty());
        let file = only_file(&trace);
        // Each reading of a table that is written is whole, too.
        for _ in 0..20 {
            let counts = read(&file);
            if counts.by_key.len() as u32 == cpus {
                check(&counts, cpus, 1);
            }
        }
        wait::until("all threads count", || {
            read(&file).by_key.len() as u32 == cpus
        });
        child.signal(Signal::SIGKILL);
        child.wait();
        check(&read(&file), cpus, 1);
        Consumer::open(&file).consume_all();
        wait::until("it is forgotten", || {
            trace.consumer_files("counts").is_empty()
        });
    }
}

fn online() -> u32 {
    let cpus = std::thread::available_parallelism();
    u32::try_from(cpus.expect("CPUs").get()).expect("a few")
}

fn only_file(trace: &Trace) -> std::path::PathBuf {
    let files = trace.consumer_files("counts");
    assert_eq!(files.len(), 1, "{files:?}");
    files.into_iter().next().expect("one")
}

/// A process that writes anything into its tables and control blocks harms neither the readers nor
/// the counts of others.
///
/// Requirements: A11, F4
fn garbage_in_counters_harms_no_other_process() {
    let trace = counting("counted", 4096, 2);
    let mut good = Child::spawn(|link| {
        attach();
        while link.receive() != 0 {
            for number in 0..1000 {
                assert_eq!(event::write(0, number), Outcome::Recorded);
            }
            link.send(1);
        }
    });
    let mut bad = Child::spawn(|link| {
        attach();
        assert_eq!(event::write(0, 1), Outcome::Recorded);
        let slot = Areas::map(0).of("counted");
        let mut seed = link.receive();
        while seed != 0 {
            for cpu in 0..slot.channel(2).nr_rings as usize {
                let table = slot.ring(2, cpu);
                for at in 0..8192 {
                    seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    table.write(at, (seed >> 56) as u8 & (seed >> 48) as u8);
                }
                table
                    .head()
                    .store(seed, std::sync::atomic::Ordering::Relaxed);
                table
                    .lost()
                    .store(!seed, std::sync::atomic::Ordering::Relaxed);
            }
            // Its own updates end, whatever they find.
            for number in 0..100 {
                let _ = event::write((number % 7) as u32, number << 40);
            }
            link.send(1);
            seed = link.receive();
        }
    });
    let file = |child: &Child| {
        let files = trace.consumer_files("counts");
        let own = format!("/{}.", child.pid());
        let mut own = files
            .into_iter()
            .filter(|file| file.to_string_lossy().contains(&own));
        own.next()
    };
    let rounds = scaled(30);
    for round in 1..=rounds {
        bad.link.send(round.wrapping_mul(0x1234_5678_9abc_def1) | 1);
        bad.link.receive();
        good.link.send(1);
        good.link.receive();
        let _ = read(&file(&bad).expect("a file"));
        let counts = read(&file(&good).expect("a file"));
        let (count, values) = &counts.by_key[&CountKey::Number(0)];
        assert_eq!(
            (*count, values.number(), counts.lost),
            (1000 * round, 1000 * round, 0)
        );
        assert_eq!(values.sum, i128::from(round) * 499_500);
        assert_eq!(counts.gaps, CountGaps::default());
    }
    for mut child in [bad, good] {
        child.link.send(0);
        child.join();
    }
}

/// A process whose tables find no memory goes on; its readers see which cells are lost, and others
/// have all of theirs.
///
/// Requirements: E7, F6
fn tables_without_memory_lose_nothing_else() {
    wait::until("nothing is held", || control::memory().total == 0);
    let trace = counting("counted", 65536, 16);
    let limit = control::Limit::new("limit_process");
    limit.set(&(100 * 4096).to_string());
    let mut child = Child::spawn(|link| {
        // Cells are of a CPU: those of another one would find no memory later.
        cpu::pin(0);
        attach();
        // Each key has a cell, and most cells a page, of their own.
        for round in 0..3u64 {
            for thread in 0..1000 {
                let outcome = event::write(thread, round);
                assert!(outcome != Outcome::Off, "{outcome:?}");
            }
        }
        link.send(1);
        link.receive();
    });
    child.link.receive();
    let file = only_file(&trace);
    let counts = read(&file);
    assert!(
        counts.gaps.lost > 0 && counts.gaps.damaged == 0,
        "{:?}",
        counts.gaps
    );
    // Cells that are not lost are exact.
    let whole = counts
        .by_key
        .values()
        .filter(|(count, _)| *count == 3)
        .count();
    assert!(whole > 50, "{whole}");
    limit.set("max");
    let other = Child::spawn(|_| {
        attach();
        for thread in 0..1000 {
            assert_eq!(event::write(thread, 5), Outcome::Recorded);
        }
    });
    let pid = other.pid();
    other.join();
    let files = trace.consumer_files("counts");
    let of_other = files
        .iter()
        .find(|file| file.to_string_lossy().contains(&format!("/{pid}.")));
    let counts = read(of_other.expect("a file"));
    assert_eq!(
        (counts.by_key.len(), counts.gaps),
        (1000, CountGaps::default())
    );
    // What was lost stays lost: it does not begin anew.
    let before = read(&file);
    assert!(before.gaps.lost > 0);
    child.link.send(1);
    child.join();
}

/// `usertrace stat --trace`: the state of now without an interval, and with one until a signal
/// comes or the trace is removed. The last state has all that was counted.
///
/// Requirements: E7, F1
fn stat_follows_a_trace_until_it_is_removed() {
    let stat = |arguments: &[&str]| {
        let mut command = Command::new(program::path("usertrace"));
        command.args(["stat", "--json", "--trace"]).args(arguments);
        command
    };
    let counted = |line: &str| -> u64 {
        let state: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let counters = state["counters"].as_array().expect("an array");
        let count = |of: &serde_json::Value| of["count"].as_u64().expect("a number");
        counters.iter().map(count).sum()
    };
    let absent = stat(&["absent"]).output().expect("it runs");
    assert_eq!(absent.status.code(), Some(1), "{absent:?}");
    assert!(
        String::from_utf8_lossy(&absent.stderr).contains("absent"),
        "{absent:?}"
    );

    let trace = counting("followed", 4096, 4);
    let mut child = Child::spawn(|link| {
        attach();
        while link.receive() != 0 {
            for number in 0..100 {
                assert_eq!(event::write(3, number), Outcome::Recorded);
            }
            link.send(0);
        }
    });
    let mut more = || {
        child.link.send(1);
        child.link.receive();
    };
    more();
    let now = stat(&["followed"]).output().expect("it runs");
    assert!(now.status.success(), "{now:?}");
    assert_eq!(counted(&String::from_utf8_lossy(&now.stdout)), 100);

    let follow = || {
        let mut follower = stat(&["followed", "--interval", "0.1"]);
        let mut follower = Running::start(follower.stdout(Stdio::piped()));
        let lines = BufReader::new(follower.0.stdout.take().expect("a pipe")).lines();
        (
            follower,
            lines.map(move |line| counted(&line.expect("a line"))),
        )
    };
    let (mut interrupted, mut counts) = follow();
    assert_eq!(counts.next(), Some(100));
    more();
    assert!(counts.any(|count| count == 200), "the next state is shown");
    let pid = i32::try_from(interrupted.0.id()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGINT).expect("it runs");
    assert!(interrupted.wait().success());

    let (mut follower, mut counts) = follow();
    assert_eq!(counts.next(), Some(200));
    more();
    assert!(counts.any(|count| count == 300), "the next state is shown");
    child.link.send(0);
    child.join();
    drop(trace);
    assert!(follower.wait().success());
    assert_eq!(counts.last().unwrap_or(300), 300);
}
