//! Recordings in chunks: each event is in one of them, and each chunk is a recording (E8, A10).

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use usertrace::Outcome;
use usertrace::fake::process::{child, wait};
use usertrace_consumer::{Limits, Notification, Options, TraceSetup, record_fallback};
use usertrace_ctf::Version;
use usertrace_reader::{Reader, Selection};

use super::disk::Disk;
use super::programs::{steps, write, write_one};
use super::run::{Run, VARIABLE, assert_success};
use super::trace::{self, Trace};
use super::victims::Random;
use usertrace_testing::babeltrace;
use usertrace_testing::counts::counts;
use usertrace_testing::wait::{LIMIT, until, until_some};

/// Environment of the recorder that these tests run: its directory, the period of its chunks in ms,
/// the program, and the mode.
const OUTPUT: &str = "USERTRACE_FAST_TEST_OUTPUT";
const EACH: &str = "USERTRACE_FAST_TEST_EACH";
const RUNS: &str = "USERTRACE_FAST_TEST_RUNS";
const MODE: &str = "USERTRACE_FAST_TEST_MODE";

/// Length of a finished chunk's name. The name of an unfinished one is longer.
const FINISHED_NAME: usize = 23;

/// Records a program as `usertrace record` does, with shorter chunks than the command allows.
/// Prints the number of events in the summary.
pub(crate) fn recorder() {
    let variable = |name| std::env::var(name).unwrap();
    let mode = variable(MODE);
    let options = Options {
        root: PathBuf::new(),
        trace: "chunks".into(),
        setup: TraceSetup {
            subbuf_size: Some(4096),
            subbuf_count: Some(4),
            block: mode == "block",
            flight: mode == "overwrite",
            ..TraceSetup::default()
        },
        output: variable(OUTPUT).into(),
        version: Version::V1_8,
        program: vec![std::env::current_exe().unwrap().into()],
        environment: vec![(VARIABLE.into(), OsString::from(variable(RUNS)))],
        pids: Vec::new(),
        kernel: None,
        limits: Limits {
            rotate_time: Some(Duration::from_millis(variable(EACH).parse().unwrap())),
            ..Limits::default()
        },
        relay: None,
    };
    let mut notify = |notification: Notification<'_>| {
        if let Notification::RecorderEvent(event) = notification
            && event.is_trouble()
        {
            eprintln!("{event}");
        }
    };
    let recording = record_fallback(&options, &mut notify).unwrap();
    assert_eq!(recording.exit_status, Some(0));
    assert_eq!(recording.incomplete, 0, "{:?}", recording.session.problems);
    let events = recording.session.processes.iter().map(|of| of.events);
    eprintln!("recorded {}", events.sum::<u64>());
}

/// A recorder that ends a chunk every `ms` and runs one of the programs.
fn often(run: &Run, ms: u32, program: &str, mode: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .env(VARIABLE, "recorder")
        .env(OUTPUT, traces(run))
        .env(EACH, ms.to_string())
        .env(RUNS, program)
        .env(MODE, mode);
    command
}

pub(crate) fn traces(run: &Run) -> PathBuf {
    run.path().join("traces")
}

/// `usertrace record` of one of the programs.
pub(crate) fn record(run: &Run, options: &[&str], program: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.args(["record", "-o"]).arg(traces(run));
    command.args(options).arg("--");
    command.arg(std::env::current_exe().unwrap());
    command.env(VARIABLE, program);
    command
}

pub(crate) fn start(mut command: Command) -> Child {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    pipes.stderr(Stdio::piped()).spawn().unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// The number in the name of a finished chunk.
fn number(chunk: &str) -> u64 {
    let (time, number) = chunk.split_once('-').unwrap();
    assert!(time.len() == 16 && number.len() == 6, "{chunk}");
    number.parse().unwrap()
}

/// All chunks of a finished recording, the oldest first. Nothing else is in the directory.
pub(crate) fn chunks(run: &Run) -> Vec<PathBuf> {
    let names = names(&traces(run));
    assert!(names.is_sorted_by_key(|name| number(name)), "{names:?}");
    let paths = names.iter().map(|name| traces(run).join(name));
    paths.collect()
}

/// The contents of all traces of a chunk.
fn read(chunk: &Path) -> Trace {
    let mut all = Trace::default();
    let directories = trace::directories(chunk);
    assert!(!directories.is_empty(), "{} is empty", chunk.display());
    for directory in directories {
        let trace = trace::read(&directory);
        all.events.extend(trace.events);
        all.discarded += trace.discarded;
        all.packets_lost += trace.packets_lost;
        all.streams.extend(trace.streams);
    }
    all
}

/// The contents of all chunks. `babeltrace2` reads each chunk, and all of them by their parent
/// directory.
fn read_all(run: &Run) -> Trace {
    let mut all = Trace::default();
    for chunk in chunks(run) {
        let trace = read(&chunk);
        let judged = babeltrace::lines(&chunk);
        assert_eq!(judged.lines.len(), trace.events.len());
        assert_eq!(judged.discarded, trace.discarded);
        all.events.extend(trace.events);
        all.discarded += trace.discarded;
        all.packets_lost += trace.packets_lost;
    }
    let judged = babeltrace::lines(&traces(run));
    assert_eq!(judged.lines.len(), all.events.len());
    all
}

/// Waits until `count` chunks are finished.
pub(crate) fn until_finished(run: &Run, count: usize) {
    let is_finished = |name: &String| name.starts_with('2') && name.len() == FINISHED_NAME;
    until("chunks are finished", || {
        let names = fs::read_dir(traces(run)).map_or(Vec::new(), |_| names(&traces(run)));
        names.iter().filter(|name| is_finished(name)).count() >= count
    });
}

/// Ends `steps`. Returns the events that it wrote and lost, its status, and the recorder's
/// messages.
pub(crate) fn end(child: &mut Child) -> (u64, u64, ExitStatus, String) {
    child.stdin.take().unwrap().write_all(b"q").unwrap();
    let (mut printed, mut said) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut printed)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    let status = child.wait().unwrap();
    let last = printed.lines().last().unwrap_or_default();
    let mut words = last.split_whitespace().map(|word| word.parse().unwrap());
    (words.next().unwrap(), words.next().unwrap(), status, said)
}

/// Asserts that each thread's events are there once, in the order of writing.
fn assert_once(trace: &Trace, written: u64, lost: u64) {
    for (thread, numbers) in trace.threads() {
        let count = numbers.len() as u64;
        let wrong = (0..count).find(|&n| numbers[n as usize] != n);
        assert!(
            wrong.is_none(),
            "thread {thread}: gaps or repetitions from event {wrong:?} of {count} on, {written} \
             written, {} packets lost",
            trace.packets_lost
        );
    }
    assert_eq!(
        (trace.events.len() as u64, trace.discarded),
        (written, lost)
    );
}

/// Requirements: E8, D3, D7
pub(crate) fn each_event_is_in_one_chunk() {
    for (rings, mode, options) in [
        ("cpu", "discard", &[][..]),
        ("thread", "block", &["--block"]),
        ("cpu", "overwrite", &["--flight"]),
    ] {
        let run = Run::new();
        let sizes = ["--subbuf-size", "4096", "--rotate-size", "20k"];
        let mut command = record(&run, &[&sizes, options].concat(), "steps");
        command.env("USERTRACE_RINGS", rings);
        if mode == "overwrite" {
            // In this mode, a ring is written only on request, so rotate by time instead of size.
            command = record(
                &run,
                &["--flight", "--subbuf-size", "1M", "--rotate-time", "1s"],
                "steps",
            );
        }
        let mut child = start(command);
        until_finished(&run, 2);
        let (written, lost, status, said) = end(&mut child);
        assert_success(status, said.as_bytes());
        let paths = chunks(&run);
        assert!(paths.len() > 2, "{mode}: {paths:?}");
        for path in &paths {
            let finished = format!("{} is finished", path.display());
            assert!(said.contains(&finished), "{said}");
        }
        let trace = read_all(&run);
        assert_once(&trace, written, lost);
        assert_eq!(trace.packets_lost, 0);
        assert!(
            said.contains(&format!("{written} events of 1 process ")),
            "{said}"
        );
    }
}

/// Readers take the chunks of a process together.
///
/// Requirements: E8
pub(crate) fn chunks_of_a_process_are_one_process() {
    let run = Run::new();
    let output = often(&run, 100, "slow", "discard").output().unwrap();
    assert_success(output.status, &output.stderr);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("recorded 50\n"), "{said}");
    assert!(chunks(&run).len() >= 3);
    let reader = Reader::open(&[traces(&run)], Selection::default()).unwrap();
    assert!(reader.traces().iter().all(|trace| trace.process() == 0));
    let usertrace = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        let output = command.args(arguments).arg(traces(&run)).output().unwrap();
        assert_success(output.status, &output.stderr);
        String::from_utf8(output.stdout).unwrap()
    };
    let viewed = usertrace(&["view"]);
    assert_eq!(viewed.lines().count(), 50);
    let top: serde_json::Value =
        serde_json::from_str(&usertrace(&["top", "--json", "-i", "0.05", "-n", "1"])).unwrap();
    let totals = top["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["total"]);
    assert_eq!(totals.collect::<Vec<_>>(), [50], "{top}");
}

/// `view --follow` goes on from one chunk to the next, and ends with the recording.
///
/// Requirements: E8
pub(crate) fn chunks_are_followed() {
    let run = Run::new();
    fs::create_dir(traces(&run)).unwrap();
    let mut view = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    view.args(["view", "--follow"]).arg(traces(&run));
    let view = start(view);
    let output = often(&run, 100, "slow", "discard").output().unwrap();
    assert_success(output.status, &output.stderr);
    let viewed = view.wait_with_output().unwrap();
    assert_success(viewed.status, &viewed.stderr);
    let text = String::from_utf8(viewed.stdout).unwrap();
    let numbers = text.lines().map(|line| {
        let (_, number) = line.rsplit_once("n = ").unwrap();
        number.trim_end_matches(" }").parse::<u64>().unwrap()
    });
    assert!(numbers.eq(0..50), "{text}");
}

/// A program that writes an event every 50 ms.
pub(crate) fn slow() {
    for n in 0..50 {
        write(1, n..n + 1);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A program that writes an event every 50 ms until two chunks with such events are finished.
/// Prints the number of events; its rings have room for all of them.
pub(crate) fn until_chunks() {
    let output = PathBuf::from(std::env::var_os("USERTRACE_OUTPUT").unwrap());
    let is_finished = |name: &&String| !name.starts_with('.') && !name.ends_with(".current");
    let mut written = 0;
    // At most a minute.
    while written < 1200 && names(&output).iter().filter(is_finished).count() < 2 {
        write(1, written..written + 1);
        written += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{written}");
}

/// Rare events do not stay in the rings: they go to the chunk of their time.
///
/// Requirements: E8
pub(crate) fn events_are_in_the_chunk_of_their_time() {
    let run = Run::new();
    let output = record(&run, &["-q", "--rotate-time", "1s"], "until_chunks")
        .output()
        .unwrap();
    assert_success(output.status, &output.stderr);
    let written = String::from_utf8(output.stdout).unwrap();
    let written = written.trim().parse().unwrap();
    let chunks = chunks(&run);
    assert!(chunks.len() >= 2, "{chunks:?}");
    for chunk in &chunks {
        assert!(!read(chunk).events.is_empty(), "{chunk:?}");
    }
    assert_once(&read_all(&run), written, 0);
}

/// Only the newest chunks stay.
///
/// Requirements: E8
pub(crate) fn old_chunks_are_removed() {
    let run = Run::new();
    let options = [
        "--subbuf-size",
        "4096",
        "--rotate-size",
        "8k",
        "--keep",
        "2",
    ];
    let mut child = start(record(&run, &options, "steps"));
    until_removed(&run, 2);
    let (_, _, status, said) = end(&mut child);
    assert_success(status, said.as_bytes());
    assert!(said.contains("was removed, as the oldest"), "{said}");
    let kept = chunks(&run);
    assert_eq!(kept.len(), 2);
    assert!(number(&names(&traces(&run))[0]) > 2);
    for chunk in kept {
        read(&chunk);
    }

    let run = Run::new();
    let options = [
        "--subbuf-size",
        "4096",
        "--rotate-size",
        "100M",
        "--max-size",
        "4M",
    ];
    let mut child = start(record(&run, &options, "steps"));
    until_removed(&run, 1);
    let (_, _, status, said) = end(&mut child);
    assert_success(status, said.as_bytes());
    assert!(said.contains("was removed, as the oldest"), "{said}");
    assert!(chunks(&run).len() >= 2);
}

/// Waits until the first `count` chunks are gone.
fn until_removed(run: &Run, count: u64) {
    until("old chunks are removed", || {
        let names = fs::read_dir(traces(run)).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut finished =
            names.filter(|name| !name.starts_with('.') && !name.ends_with(".current"));
        // One finished chunk remains, and none of the first `count`.
        let first = finished.next().map(|name| number(&name));
        first.is_some_and(|first| first > count && finished.all(|name| number(&name) > count))
    });
}

/// A link prepared in the directory does not redirect the recorder, and stale notes do no harm.
pub(crate) fn stale_checkpoints_are_ignored() {
    let run = Run::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let link: &dyn Fn(&Path) =
        &|notes| std::os::unix::fs::symlink(elsewhere.path(), notes).unwrap();
    let rest: &dyn Fn(&Path) = &|notes| {
        fs::create_dir(notes).unwrap();
        fs::write(notes.join("lock-1"), "").unwrap();
        fs::write(notes.join("place"), "number 7\nbegin 7\n").unwrap();
    };
    for (prepare, options) in [
        (link, &["-q", "--rotate-time", "1s"][..]),
        (rest, &["-q", "--rotate-time", "1s"]),
        (rest, &["-q"]),
    ] {
        fs::create_dir(traces(&run)).unwrap();
        prepare(&traces(&run).join(".usertrace"));
        let output = record(&run, options, "ten").output().unwrap();
        assert_success(output.status, &output.stderr);
        let events = match options.len() {
            1 => {
                let all = names(&traces(&run));
                assert_eq!(all.len(), 1, "{all:?}");
                trace::read(&traces(&run).join(&all[0])).events.len()
            }
            _ => {
                assert_eq!(number(&names(&traces(&run))[0]), 1);
                read_all(&run).events.len()
            }
        };
        assert_eq!(events, 10);
        assert!(names(elsewhere.path()).is_empty());
        fs::remove_dir_all(traces(&run)).unwrap();
    }
}

/// Without chunks, the recording ends when it is too large, and the program goes on.
pub(crate) fn recording_ends_at_size_limit() {
    let run = Run::new();
    let options = ["--subbuf-size", "4096", "--max-size", "30k"];
    let mut child = start(record(&run, &options, "steps"));
    std::thread::sleep(Duration::from_millis(1500));
    let (written, _, status, said) = end(&mut child);
    assert_success(status, said.as_bytes());
    assert!(said.contains("the recording ends"), "{said}");
    assert_eq!(names(&traces(&run)).len(), 1);
    let trace = read(&traces(&run));
    let events = trace.events.len() as u64;
    assert!(events > 1000 && events < written, "{events} of {written}");
    for (thread, numbers) in trace.threads() {
        assert!(
            numbers.iter().copied().eq(0..numbers.len() as u64),
            "{thread}"
        );
    }
}

/// The first child of a process.
fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// The daemons of the program that `record` runs; `pid` is that of `record`.
fn daemons_below(pid: u32) -> Vec<i32> {
    child_of(pid).map_or(Vec::new(), daemons_of)
}

/// The daemons that serve a program.
fn daemons_of(program: u32) -> Vec<i32> {
    let memory = |pid: &str| -> Option<String> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let line = maps
            .lines()
            .find(|line| line.ends_with("/dev/zero (deleted)"))?;
        line.split_whitespace().nth(4).map(str::to_owned)
    };
    let Some(own) = memory(&program.to_string()) else {
        return Vec::new();
    };
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = pids.filter(|pid| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm == "usertrace-fast\n") && memory(pid).as_ref() == Some(&own)
    });
    pids.map(|pid| pid.parse().unwrap()).collect()
}

/// Kills one of the daemons of the program that `record` runs, after a random pause. False: there
/// are not two daemons. `pid` is that of `record`.
fn kill_one(pid: u32, random: &mut Random) -> bool {
    let [one, other] = daemons_below(pid)[..] else {
        return false;
    };
    std::thread::sleep(Duration::from_micros(random.below(20_000)));
    let daemon = [one, other][random.below(2) as usize];
    // SAFETY: the signal goes to a daemon of the program that this test started.
    unsafe { libc::kill(daemon, libc::SIGKILL) };
    until("a killed daemon is gone", || {
        !daemons_below(pid).contains(&daemon)
    });
    true
}

/// Daemons are killed at random instants while chunks change.
///
/// Requirements: A10, E8
pub(crate) fn killed_daemons_lose_no_event_in_chunks() {
    let mut random = Random::new();
    for mode in ["discard", "block"] {
        let run = Run::new();
        let mut child = start(often(&run, 10, "steps", mode));
        for _ in 0..counts(30, 300) {
            until("a daemon is killed", || kill_one(child.id(), &mut random));
        }
        let (written, lost, status, said) = end(&mut child);
        assert_success(status, said.as_bytes());
        assert!(chunks(&run).len() >= 3);
        assert!(said.contains(&format!("recorded {written}\n")), "{said}");
        assert_once(&read_all(&run), written, lost);
    }
}

/// A watchdog that the worker starts has none of the worker's files, so it keeps no chunk open.
pub(crate) fn replaced_watchdog_keeps_no_chunk() {
    let run = Run::new();
    let mut child = start(often(&run, 100, "steps", "discard"));
    let two = || {
        let daemons = daemons_below(child.id());
        (daemons.len() == 2).then_some(daemons)
    };
    let daemons = until_some("two daemons live", two);
    until_finished(&run, 1);
    // The worker is a child of the watchdog.
    let parent = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
        fields.split(' ').nth(1).and_then(|pid| pid.parse().ok())
    };
    let is_watchdog = |pid: &&i32| !daemons.iter().any(|other| parent(pid) == Some(*other));
    let watchdog = *daemons.iter().find(is_watchdog).unwrap();
    // SAFETY: the signal goes to a daemon of the program that this test started.
    unsafe { libc::kill(watchdog, libc::SIGKILL) };
    until("another watchdog lives", || {
        two().is_some_and(|daemons| !daemons.contains(&watchdog))
    });
    let currents = || {
        let names = names(&traces(&run)).into_iter();
        names.filter(|name| name.ends_with(".current"))
    };
    let before: Vec<_> = currents().collect();
    until("all of these chunks are finished", || {
        !currents().any(|name| before.contains(&name))
    });
    let (written, lost, status, said) = end(&mut child);
    assert_success(status, said.as_bytes());
    assert_once(&read_all(&run), written, lost);
}

/// Programs come and go while chunks change: no process is missing, and no event.
///
/// Requirements: A5, E8
pub(crate) fn each_short_lived_child_is_in_a_chunk() {
    for _ in 0..counts(1, 30) {
        let run = Run::new();
        let output = often(&run, 10, "some_children", "discard")
            .output()
            .unwrap();
        assert_children(&run, &output);
        assert!(chunks(&run).len() > 1);
    }
    let run = Run::new();
    let output = often(&run, 10, "fork", "discard").output().unwrap();
    assert_success(output.status, &output.stderr);
    assert_eq!(read_all(&run).events.len(), 4005);
}

/// Asserts that each traced child of [`some_children`] is there once, and that the log has the
/// others.
fn assert_children(run: &Run, output: &Output) {
    assert_success(output.status, &output.stderr);
    let traced = String::from_utf8_lossy(&output.stdout);
    let traced = traced.lines().map(|n| (n.parse().unwrap(), vec![0]));
    let traced: Vec<_> = traced.collect();
    let log = traces(run).join("usertrace.log");
    let said = fs::read_to_string(&log).unwrap_or_default();
    assert!(
        said.lines().all(|line| line.contains("were not traced")),
        "{said}"
    );
    assert!(traced.len() == 301 || !said.is_empty(), "{traced:?}");
    let _ = fs::remove_file(&log);
    let threads: Vec<_> = read_all(run).threads().into_iter().collect();
    assert_eq!(threads, traced);
    assert!(threads.len() > 100, "{}", threads.len());
}

/// A program with short-lived children. Prints which of them were traced: where daemons are killed,
/// or constantly complete traces, slots are not always freed in time.
pub(crate) fn some_children() {
    write(0, 0..1);
    println!("0");
    for n in 1..=300 {
        let status = wait(child(|| {
            assert_eq!(write_one(n, 0), Outcome::Recorded);
        }));
        if status == 0 {
            println!("{n}");
        }
    }
}

/// Each traced child is there once, while daemons are killed.
///
/// Requirements: A5, A10, E8
pub(crate) fn each_short_lived_child_of_killed_daemons_is_in_a_chunk() {
    let mut random = Random::new();
    for _ in 0..counts(1, 20) {
        let run = Run::new();
        let mut child = start(often(&run, 10, "some_children", "discard"));
        while child.try_wait().unwrap().is_none() {
            if !kill_one(child.id(), &mut random) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_children(&run, &child.wait_with_output().unwrap());
    }
}

/// Threads take rings from each other while chunks change.
pub(crate) fn rings_of_threads_are_written_to_chunks() {
    for _ in 0..counts(1, 50) {
        let run = Run::new();
        let mut command = often(&run, 10, "many_threads", "discard");
        let output = command.env("USERTRACE_RINGS", "thread").output().unwrap();
        assert_success(output.status, &output.stderr);
        let threads: Vec<_> = read_all(&run).threads().into_iter().collect();
        let expected: Vec<_> = (0..200).map(|n| (n, (0..10).collect())).collect();
        assert_eq!(threads, expected);
    }
}

/// Whatever the file with the chunk's name contains, the daemons write below the directory.
///
/// Requirements: F4
pub(crate) fn forged_chunk_name_does_not_redirect_output() {
    let run = Run::new();
    let mut child = start(often(&run, 50, "steps", "discard"));
    until_finished(&run, 1);
    let place = traces(&run).join(".usertrace/place");
    for text in ["../../x", "number 99999999\nbegin 1\n", "\0\u{1}", ""] {
        fs::write(&place, text).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let (written, lost, status, said) = end(&mut child);
    assert_success(status, said.as_bytes());
    let mut trace = Trace::default();
    for name in names(&traces(&run)) {
        if name == "usertrace.log" {
            continue;
        }
        assert!(number(&name.replace("99999999", "999999")) > 0);
        let chunk = read(&traces(&run).join(name));
        trace.events.extend(chunk.events);
        trace.discarded += chunk.discarded;
    }
    assert_once(&trace, written, lost);
}

/// A process without events is in no chunk, and no empty chunk is made.
pub(crate) fn idle_process_makes_no_chunk() {
    let run = Run::new();
    let output = often(&run, 10, "idle", "discard").output().unwrap();
    assert_success(output.status, &output.stderr);
    assert!(names(&traces(&run)).is_empty());
}

/// The first process of a PID namespace, with which the daemons end.
pub(crate) fn process_1_is_recorded_in_chunks() {
    let run = Run::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.args(["record", "--json", "-q", "--rotate-time", "1s", "-o"]);
    command.arg(traces(&run));
    command.args([
        "--",
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
    ]);
    command.arg(std::env::current_exe().unwrap());
    let output = command.env(VARIABLE, "slow").output().unwrap();
    assert_success(output.status, &output.stderr);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["processes"][0]["events"], 50, "{json}");
    assert!(chunks(&run).len() >= 2);
    assert_once(&read_all(&run), 50, 0);
}

/// A full disk is reported as it is without chunks.
pub(crate) fn full_disk_is_reported_with_chunks() {
    // SAFETY: `geteuid` takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let run = Run::new();
    let Some(disk) = Disk::new(&run, "256k") else {
        return;
    };
    let usertrace = |arguments: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        let program = std::env::current_exe().unwrap();
        let arguments = arguments.iter().map(|&argument| match argument {
            "PROGRAM" => program.to_str().unwrap(),
            argument => argument,
        });
        let command = command.args(arguments).current_dir(disk.path());
        command.env(VARIABLE, "events").output().unwrap()
    };
    // A relative directory is relative to the recorder.
    let output = usertrace(&["record", "--rotate-size", "40k", "-o", "t", "--", "PROGRAM"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    let names = names(&disk.path().join("t"));
    assert!(
        names
            .iter()
            .all(|name| name == "usertrace.log" || number(name) > 0)
    );
    let read = usertrace(&["view", "t"]);
    let said = String::from_utf8_lossy(&read.stderr);
    assert_eq!(read.status.code(), Some(3), "{said}");
    assert!(said.contains("incomplete"), "{said}");
    assert!(!read.stdout.is_empty());
}

/// The program goes on when its recorder is killed. Its daemons write to the last named chunk,
/// which can be read.
pub(crate) fn killed_recorder_leaves_readable_chunks() {
    let run = Run::new();
    let mut command = record(
        &run,
        &["--subbuf-size", "4096", "--rotate-size", "8k"],
        "steps",
    );
    command.process_group(0);
    let mut child = start(command);
    until_finished(&run, 2);
    child.kill().unwrap();
    let (mut printed, mut input) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    std::thread::sleep(Duration::from_millis(300));
    input.write_all(b"q").unwrap();
    drop(input);
    let mut text = String::new();
    printed.read_to_string(&mut text).unwrap();
    let words: Vec<u64> = text
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let has_marks = || {
        let chunks = names(&traces(&run)).into_iter();
        let chunks = chunks.filter(|name| name.starts_with('2'));
        let directories = chunks.flat_map(|name| trace::directories(&traces(&run).join(name)));
        directories
            .map(|path| path.join(".unfinished"))
            .any(|mark| mark.exists())
    };
    until("all is written", || !has_marks());
    let mut all = Trace::default();
    for name in names(&traces(&run))
        .iter()
        .filter(|name| name.starts_with('2'))
    {
        if let Some(last) = trace::directories(&traces(&run).join(name)).first() {
            let trace = trace::read(last);
            all.events.extend(trace.events);
            all.discarded += trace.discarded;
        }
    }
    assert_once(&all, words[0], words[1]);
    assert_eq!(
        babeltrace::lines(&traces(&run)).lines.len() as u64,
        words[0]
    );
}

/// Chunks and the notes that name them are removed while they are written: the program and the
/// recorder go on, and the chunks that begin afterwards lack nothing.
pub(crate) fn chunks_may_be_removed_while_written() {
    let run = Run::new();
    let mut child = start(often(&run, 20, "steps", "block"));
    until_finished(&run, 1);
    let begun = Instant::now();
    let mut removed = 0;
    // The newest chunk that may lack something. Names sort by time.
    let mut newest = String::new();
    let is_chunk = |name: &String| name.starts_with('2');
    // On a busy machine, few chunks are finished in this time.
    while begun.elapsed() < Duration::from_millis(1500) || removed < 3 {
        assert!(begun.elapsed() < LIMIT, "only {removed} chunks");
        std::thread::sleep(Duration::from_millis(70));
        for name in names(&traces(&run)) {
            if name != ".running" && fs::remove_dir_all(traces(&run).join(&name)).is_ok() {
                removed += 1;
            }
            if is_chunk(&name) {
                newest = newest.max(name[..FINISHED_NAME].to_owned());
            }
        }
    }
    let next = || {
        let chunks = names(&traces(&run)).into_iter().filter(is_chunk);
        chunks.filter(|name| name[..FINISHED_NAME] > *newest)
    };
    // When the first of them begins, the rings are not read equally far: events of one are lost in
    // removed files, while older ones of the other are not read yet.
    until("the next chunks are finished", || {
        let mut finished = next().skip(1).filter(|name| name.len() == FINISHED_NAME);
        finished.any(|name| read(&traces(&run).join(name)).threads().len() == 2)
    });
    let (written, lost, status, said) = end(&mut child);
    assert_success(status, said.as_bytes());
    let (mut all, mut later) = (Trace::default(), Trace::default());
    for (at, name) in next().enumerate() {
        let trace = read(&traces(&run).join(name));
        if at > 0 {
            later.events.extend(trace.events.iter().cloned());
        }
        all.events.extend(trace.events);
        all.discarded += trace.discarded;
    }
    let mut ends = 0;
    for ((thread, mut numbers), (_, later)) in all.threads().into_iter().zip(later.threads()) {
        let first = later.iter().min().unwrap();
        numbers.retain(|number| number >= first);
        let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
        assert_eq!(gap, None, "thread {thread} of {newest} on");
        ends += numbers.last().unwrap() + 1;
    }
    assert_eq!(ends, written);
    // Some of the events whose files were removed are counted in later chunks.
    assert!(all.discarded <= lost, "{} of {lost}", all.discarded);
}

/// Runs `slow` beside `steps`.
pub(crate) fn two() {
    let mut slow = Command::new(std::env::current_exe().unwrap());
    let mut slow = slow.env(VARIABLE, "slow").spawn().unwrap();
    steps();
    assert!(slow.wait().unwrap().success());
}

/// A stopped worker keeps its chunk open and loses nothing. The chunks of other processes go on.
pub(crate) fn stopped_daemon_delays_no_other_process() {
    let run = Run::new();
    let mut child = start(often(&run, 100, "two", "discard"));
    let (slow, mut daemons) = until_some("daemons live", || {
        let slow = child_of(child_of(child.id())?)?;
        let daemons = daemons_of(slow);
        let are_its_own = daemons.len() == 2 && daemons != daemons_below(child.id());
        are_its_own.then_some((slow, daemons))
    });
    until_finished(&run, 2);
    let signal = |daemons: &[i32], signal| {
        for daemon in daemons {
            // SAFETY: the signal goes to a daemon of the program that this test started.
            unsafe { libc::kill(*daemon, signal) };
        }
    };
    let is_of_slow = |daemon: i32| {
        let files = fs::read_dir(format!("/proc/{daemon}/fd")).into_iter();
        let mut links = files.flatten().flatten();
        links.any(|link| fs::read_link(link.path()).is_ok_and(|path| path.ends_with(".unfinished")))
    };
    let is_stopped = |daemon: &i32| {
        let stat = fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap_or_default();
        stat.contains(") T ")
    };
    until("a daemon stands still in the middle of a trace", || {
        until("both stand still", || {
            // A process that has started a daemon looks like one until it ends.
            daemons = daemons_of(slow);
            let stop = if daemons.len() == 2 {
                libc::SIGSTOP
            } else {
                libc::SIGCONT
            };
            signal(&daemons, stop);
            daemons.len() == 2 && daemons.iter().all(is_stopped)
        });
        let has_trace = daemons.iter().any(|&daemon| is_of_slow(daemon));
        if !has_trace {
            signal(&daemons, libc::SIGCONT);
            std::thread::sleep(Duration::from_millis(5));
        }
        has_trace
    });
    let all = names(&traces(&run)).len();
    until_finished(&run, all + 3);
    let currents = names(&traces(&run)).into_iter();
    let currents: Vec<_> = currents.filter(|name| name.ends_with(".current")).collect();
    assert!((2..=3).contains(&currents.len()), "{currents:?}");
    signal(&daemons, libc::SIGCONT);
    until("its chunk is finished", || {
        !traces(&run).join(&currents[0]).exists()
    });
    let (written, lost, status, said) = end(&mut child);
    assert_success(status, said.as_bytes());
    let trace = read_all(&run);
    assert_eq!(
        (trace.events.len() as u64, trace.discarded),
        (written + 50, lost)
    );
}
