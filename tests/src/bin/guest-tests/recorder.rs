//! Recorders: killed ones, several ones, ones that writers wait for, and snapshots (C5, D3, D7, E3,
//! E6, F1).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use usertrace::Outcome;
use usertrace_consumer::CONTROL_FS;
use usertrace_testing::babeltrace::{self, Printed};
use usertrace_testing::wait;
use usertrace_tests::child::Child;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, by_thread, check_prefix};
use usertrace_tests::guest::{from_env, scaled};
use usertrace_tests::program;
use usertrace_tests::random::Random;
use usertrace_tests::reader::Reader;
use usertrace_tests::record::Recorder;
use usertrace_tests::running::Running;
use usertrace_tests::shared::Shared;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    repeatedly_killed_recorder_loses_and_repeats_nothing,
    second_recorder_is_rejected,
    recording_of_a_pid_ends_with_the_process,
    writers_block_only_while_a_reader_is_attached,
    snapshot_has_the_newest_events_and_stops_no_writer,
];

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    recorder_raises_its_limit_of_open_files,
    undescribed_events_are_reported,
    terminal_shows_the_progress_of_a_recording,
];

const THREADS: usize = 3;
/// How many recorders are killed. A hundred take two minutes: a variable asks for more.
const KILLS: u64 = 20;
const MORE: &str = "USERTRACE_TEST_KILLS";

fn usertrace(arguments: &[&str], output: &Path) -> Command {
    let mut command = Command::new(program::path("usertrace"));
    command
        .args(arguments)
        .arg("--output")
        .arg(output)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Starts a child whose threads write two events per millisecond until `stop` is set.
fn writers(stop: &Shared, recorded: &[Shared; THREADS], lost: &Shared) -> Child {
    let mut child = Child::spawn(|link| {
        event::attach();
        link.send(0);
        std::thread::scope(|scope| {
            for (thread, recorded) in recorded.iter().enumerate() {
                scope.spawn(move || {
                    let mut number = 0;
                    while stop.get().load(Ordering::Relaxed) == 0 {
                        for _ in 0..2 {
                            match event::write(thread as u32, number) {
                                Outcome::Recorded => number += 1,
                                Outcome::Lost => {
                                    lost.get().fetch_add(1, Ordering::Relaxed);
                                }
                                Outcome::Off => {}
                            }
                        }
                        recorded.get().store(number, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
        });
    });
    child.link.receive();
    child
}

fn shared() -> [Shared; THREADS] {
    std::array::from_fn(|_| Shared::new())
}

/// Requirements: C5
fn repeatedly_killed_recorder_loses_and_repeats_nothing() {
    // Small, so that events are lost while nobody reads.
    let trace = Trace::started_with("killed", 4096, 8);
    let (stop, recorded, lost) = (Shared::new(), shared(), Shared::new());
    let writers = writers(&stop, &recorded, &lost);
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let mut random = Random::new();
    let consumed = || -> u64 {
        let rings = trace.stats().rings;
        rings.iter().map(|ring| ring.consumed).sum()
    };
    for _ in 0..from_env(MORE, scaled(KILLS).max(3)) {
        let recorder = Recorder::start(&trace, &output);
        let before = consumed();
        wait::until("it reads", || consumed() > before);
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        // Killed, without a warning.
        drop(recorder);
    }
    let recorder = Recorder::start(&trace, &output);
    stop.get().store(1, Ordering::Relaxed);
    writers.join();
    recorder.finish(&trace);
    let read = babeltrace::read(&output);
    let threads = by_thread(read.events.iter().map(Printed::numbered));
    for (thread, recorded) in recorded.iter().enumerate() {
        let numbers = threads.get(&(thread as u32)).map_or(&[][..], Vec::as_slice);
        assert_eq!(
            check_prefix(numbers),
            recorded.get().load(Ordering::Relaxed),
            "thread {thread}"
        );
    }
    assert_eq!(read.discarded, lost.get().load(Ordering::Relaxed));
    println!("{} events, {} lost", read.events.len(), read.discarded);
}

/// Requirements: C5
fn second_recorder_is_rejected() {
    let trace = Trace::started("two");
    let (stop, recorded, lost) = (Shared::new(), shared(), Shared::new());
    let writers = writers(&stop, &recorded, &lost);
    let directory = tempfile::tempdir().expect("a directory");
    let first = Recorder::start(&trace, &directory.path().join("first"));
    wait::until("it reads", || {
        trace.stats().rings.iter().any(|ring| ring.consumed > 0)
    });
    let second = usertrace(
        &["record", "--trace", "two"],
        &directory.path().join("second"),
    )
    .output()
    .expect("usertrace runs");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(125), "{said}");
    assert!(said.contains("two"), "{said}");
    stop.get().store(1, Ordering::Relaxed);
    writers.join();
    first.finish(&trace);
    let read = babeltrace::read(&directory.path().join("first"));
    let count: u64 = recorded
        .iter()
        .map(|recorded| recorded.get().load(Ordering::Relaxed))
        .sum();
    assert_eq!((read.events.len() as u64, read.discarded), (count, 0));
}

/// Requirements: C4
fn recording_of_a_pid_ends_with_the_process() {
    let both = [(); 2].map(|()| (Shared::new(), shared(), Shared::new()));
    let [wanted, other] = both
        .each_ref()
        .map(|(stop, recorded, lost)| writers(stop, recorded, lost));
    let recorded_by = |which: usize| -> u64 {
        let recorded = both[which].1.iter();
        recorded.map(|r| r.get().load(Ordering::Relaxed)).sum()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let pid = wanted.pid().to_string();
    let mut command = usertrace(&["record", "--json", "--pid", &pid], &output);
    let mut recorder = Running::start(command.stdout(Stdio::piped()));
    wait::until("both are traced", || {
        recorded_by(0) > 100 && recorded_by(1) > 100
    });
    assert!(recorder.0.try_wait().expect("a child").is_none());
    both[0].0.get().store(1, Ordering::Relaxed);
    wanted.join();
    // The recorder ends when the last process has ended.
    assert_eq!(recorder.wait().code(), Some(0));
    let said = recorder.0.stdout.take().expect("piped");
    let summary: serde_json::Value = serde_json::from_reader(said).expect("JSON");
    let processes = summary["processes"].as_array().expect("processes");
    let pids: Vec<_> = processes.iter().map(|p| p["pid"].to_string()).collect();
    assert_eq!(pids, [pid.as_str()]);
    let read = babeltrace::read(&output);
    let lost = both[0].2.get().load(Ordering::Relaxed);
    assert_eq!(
        (read.events.len() as u64, read.discarded),
        (recorded_by(0), lost)
    );
    both[1].0.get().store(1, Ordering::Relaxed);
    other.join();

    // The process is gone.
    let gone = usertrace(&["record", "--pid", &pid], &directory.path().join("gone")).output();
    let gone = gone.expect("it runs");
    let said = String::from_utf8_lossy(&gone.stderr);
    assert_eq!(gone.status.code(), Some(125), "{said}");
    assert!(
        said.contains(&format!("no process {pid} to record")),
        "{said}"
    );
    assert!(!directory.path().join("gone").exists());
}

/// The recorder needs several open files for each process, so it raises its limit of open files.
/// The program that it runs keeps the old limit.
///
/// Requirements: C4
fn recorder_raises_its_limit_of_open_files() {
    const PROCESSES: u32 = 60;
    const FILES: u64 = 64;
    let trace = Trace::started("many");
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let mut writers: Vec<_> = (0..PROCESSES)
        .map(|writer| {
            Child::spawn(move |link| {
                event::attach();
                assert_eq!(event::write(writer, 0), Outcome::Recorded);
                link.send(0);
                link.receive();
            })
        })
        .collect();
    writers.iter_mut().for_each(|writer| {
        writer.link.receive();
    });
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -Sn {FILES}; exec \"$@\""), "sh"]);
    command.arg(program::path("usertrace"));
    command.args(["record", "--quiet", "--trace", trace.name(), "--output"]);
    command.arg(&output);
    command.args(["--", "sh", "-c", "ulimit -Sn"]);
    let recorded = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert!(recorded.status.success() && said.is_empty(), "{said}");
    let limit = String::from_utf8_lossy(&recorded.stdout);
    assert_eq!(limit.trim(), FILES.to_string(), "what it runs has");
    let read = babeltrace::read(&output);
    let mut all: Vec<_> = read.events.iter().map(Printed::numbered).collect();
    all.sort_unstable();
    let expected: Vec<_> = (0..PROCESSES).map(|writer| (writer, 0)).collect();
    assert_eq!(all, expected);
    for mut writer in writers {
        writer.link.send(0);
        writer.wait();
    }
}

/// The recorder shows its progress in one line, until a key ends it and the summary replaces the
/// line.
///
/// Requirements: F1
fn terminal_shows_the_progress_of_a_recording() {
    let (stop, recorded, lost) = (Shared::new(), shared(), Shared::new());
    let writers = writers(&stop, &recorded, &lost);
    let directory = tempfile::tempdir().expect("a directory");
    // Not in the command line, which a shell splits.
    let record = "exec \"$USERTRACE\" record -a -o trace";
    let mut terminal = Command::new("script");
    // Without a program, it records everything until it is stopped.
    terminal
        .args([
            "--quiet",
            "--flush",
            "--return",
            "--command",
            record,
            "typescript",
        ])
        .current_dir(directory.path())
        .env("USERTRACE", program::path("usertrace"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut terminal = Running::start(&mut terminal);
    let shown = || std::fs::read_to_string(directory.path().join("typescript")).unwrap_or_default();
    let lines = |text: &str| text.matches(" events (").count();
    wait::until("it shows two", || lines(&shown()) >= 2);
    let mut keys = terminal.0.stdin.take().expect("piped");
    keys.write_all(b"\x03").expect("a key");
    assert_eq!(terminal.wait().code(), Some(0));
    let shown = shown();
    let (progress, summary) = shown.rsplit_once("\r\x1b[K").expect("it was erased");
    let last = progress.rsplit('\r').next().expect("a line");
    let line = last.strip_suffix("\x1b[K^C").expect("the rest is erased");
    let words: Vec<_> = line
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let [
        "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9",
        "s",
        "1",
        "process",
        events,
        "events",
        ..,
    ] = words[..]
    else {
        panic!("{line}");
    };
    assert!(
        events.parse::<u64>().is_ok_and(|events| events > 0),
        "{line}"
    );
    assert!(line.ends_with(" 0 lost"), "{line}");
    // The only other line is the one with which `script` begins.
    assert_eq!(progress.matches('\n').count(), 1, "{progress:?}");
    assert!(summary.starts_with("usertrace: ") && summary.contains(" events of 1 process in"));
    stop.get().store(1, Ordering::Relaxed);
    writers.join();
}

/// Requirements: D7
fn writers_block_only_while_a_reader_is_attached() {
    for scope in ["cpu", "thread", "global"] {
        let trace = Trace::create("blocks");
        trace.write("main/scope", scope).expect("scope");
        trace.set_geometry("main", 4096, 4);
        trace.write("main/mode", "block").expect("mode");
        trace.start();
        // More than fit into the rings of all CPUs, wherever the writer runs.
        let count = scaled(20_000).max(4_000);
        let written = Shared::new();
        let mut child = Child::spawn(|link| {
            event::attach();
            assert_eq!(event::write(0, 0), Outcome::Recorded);
            assert_eq!(usertrace::flush(), Ok(()));
            link.send(0);
            link.receive();
            for number in 1..count {
                assert_eq!(event::write(0, number), Outcome::Recorded, "{number}");
                written.get().store(number, Ordering::Relaxed);
            }
            link.send(0);
            link.receive();
            // Without a reader, events without room are lost at once.
            let lost = (0..count).filter(|_| event::write(1, 0) == Outcome::Lost);
            assert!(lost.count() > 0);
        });
        child.link.receive();
        let path = wait::until_some("there is a file", || trace.consumer_files("main").pop());
        let mut reader = Reader::open(&path).expect("the file");
        let mut numbers = Vec::new();
        reader.drain(|_, (_, number)| numbers.push(number));
        child.link.send(0);
        // The writer continues until the ring is full, and no further.
        let ring = || written.get().load(Ordering::Relaxed);
        wait::until("it waits", || {
            let before = ring();
            std::thread::sleep(Duration::from_millis(200));
            before > 0 && ring() == before && trace.stats().rings.iter().all(|ring| ring.lost == 0)
        });
        assert!(ring() < count - 1, "{scope}: {}", ring());
        wait::until("it has written all", || {
            reader.drain(|_, (_, number)| numbers.push(number));
            child.link.is_ready(nix::poll::PollTimeout::ZERO)
        });
        child.link.receive();
        reader.drain(|_, (_, number)| numbers.push(number));
        numbers.sort_unstable();
        assert_eq!(check_prefix(&numbers), count, "{scope}");
        drop(reader);
        child.link.send(0);
        child.join();
    }
}

/// Requirements: E3
fn snapshot_has_the_newest_events_and_stops_no_writer() {
    let trace = Trace::create("looked-at");
    // In a CPU's ring, one thread may overwrite all events of another that waits for the CPU.
    trace.write("main/scope", "thread").expect("scope");
    trace.set_geometry("main", 4096, 4);
    trace.write("main/flight", "1").expect("flight");
    trace.start();
    let (stop, recorded, lost) = (Shared::new(), shared(), Shared::new());
    let writers = writers(&stop, &recorded, &lost);
    let counts = || -> [u64; THREADS] {
        std::array::from_fn(|thread| recorded[thread].get().load(Ordering::Relaxed))
    };
    let directory = tempfile::tempdir().expect("a directory");
    for turn in 0..3 {
        let begun = counts();
        wait::until("it was overwritten", || {
            counts()
                .iter()
                .zip(begun)
                .all(|(now, begun)| *now > begun + 2000)
        });
        let before = counts();
        let output = directory.path().join(turn.to_string());
        let ran = usertrace(&["snapshot", "--quiet", trace.name()], &output)
            .output()
            .expect("usertrace runs");
        let after = counts();
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        let read = babeltrace::read(&output);
        let threads = by_thread(read.events.iter().map(Printed::numbered));
        for thread in 0..THREADS {
            let numbers = &threads[&(thread as u32)];
            let last = *numbers.last().expect("an event");
            // The thread counts two events at a time, so up to two more may be there.
            assert!((before[thread]..=after[thread] + 2).contains(&(last + 1)));
            assert!(numbers.len() > 10 && after[thread] > before[thread]);
        }
    }
    let rings = trace.stats().rings;
    assert!(
        rings
            .iter()
            .all(|ring| ring.consumed == 0 && ring.lost == 0)
    );
    stop.get().store(1, Ordering::Relaxed);
    writers.join();
}

/// An event can be recorded only after it is described. Without room for descriptions, its events
/// are missing in the trace, and the recorder must report that.
///
/// Requirements: D3, E6
fn undescribed_events_are_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let record = |output: &str, arguments: &[&str]| {
        let output = usertrace(&["record"], &directory.path().join(output))
            .args(arguments)
            .output()
            .expect("usertrace runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), said)
    };
    let program = program::path("lttng-program");
    // Each CPU has a ring: all descriptions must go to one.
    let program = program.to_str().expect("UTF-8");
    // The descriptions of three libraries need twice the room of the crowded channel, however long
    // the program's path is.
    let libraries = ["--malloc", "--pthread", "--dl"];
    let program = [&libraries[..], &["--", "taskset", "-c", "0", program]].concat();
    let told = "not all events could be described";

    let crowded = Trace::create("crowded");
    crowded.set_geometry("control", 4096, 2);
    let (_, said) = record("crowded", &[&["--trace", "crowded"], &program[..]].concat());
    assert!(said.contains(told), "{said}");
    drop(crowded);

    let (_, said) = record("usual", &program);
    assert!(!said.contains(told), "{said}");

    // A trace that it makes has room for the events of large programs: 2 MiB for each CPU.
    let control = format!("{CONTROL_FS}/roomy/control");
    let cat = ["--trace", "roomy", "--", "cat"];
    let files = ["subbuf_size", "subbuf_count"].map(|file| format!("{control}/{file}"));
    let files = [files[0].as_str(), files[1].as_str()];
    let (printed, _) = record("roomy", &[&cat[..], &files[..]].concat());
    let numbers = printed.split_whitespace().map(str::parse::<u64>);
    assert_eq!(
        numbers.product::<Result<u64, _>>(),
        Ok(2 << 20),
        "{printed}"
    );
}
