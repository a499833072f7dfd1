//! The kernel's own events in recordings: `record --kernel` (F9).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use usertrace::Outcome;
use usertrace_consumer::CONTROL_FS;
use usertrace_testing::babeltrace::{self, Printed, Read};
use usertrace_testing::wait;
use usertrace_tests::child::Child;
use usertrace_tests::control::Trace;
use usertrace_tests::event;
use usertrace_tests::guest::{from_env, scaled};
use usertrace_tests::program;
use usertrace_tests::random::Random;
use usertrace_tests::record;
use usertrace_tests::running::Running;

use crate::{Case, cases};

pub(crate) const CHANGE_CODE: &[Case] = cases![
    missing_tracefs_and_unknown_kernel_events_are_named,
    kernel_events_are_ordered_among_program_events,
    kernel_events_of_a_killed_recorder_are_in_no_other_recording,
    overwritten_kernel_events_are_counted,
    kernel_events_are_recorded_without_trace_buffers,
    kernel_event_fields_equal_the_kernels_own_text,
    killed_recorder_repeats_and_omits_no_kernel_event,
];

const TRACEFS: &str = "/sys/kernel/tracing";
/// An event for each name that a thread gives itself.
const RENAME: &str = "task:task_rename";
const KILLS: u64 = 10;
const MORE: &str = "USERTRACE_TEST_KILLS";

pub(crate) fn mount_tracefs() {
    if Path::new(TRACEFS).join("trace_clock").exists() {
        return;
    }
    let none = None::<&str>;
    mount(none, TRACEFS, Some("tracefs"), MsFlags::empty(), none).expect("tracefs");
}

fn instances() -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(TRACEFS).join("instances")).expect("instances");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Renames the thread to `n` and a number.
fn rename(number: u64) {
    let name = format!("n{number}\0");
    // SAFETY: a string.
    let ret = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    assert_eq!(ret, 0);
}

/// The number in an event's new name.
fn renamed(event: &Printed) -> Option<u64> {
    assert_eq!(event.name, RENAME);
    event.text("newcomm").strip_prefix('n')?.parse().ok()
}

/// A recorder of a trace and of these events of the kernel's.
fn recorder(trace: &str, kernel: &[&str], output: &Path) -> Running {
    let options = [&["--trace", trace, "--kernel"], kernel].concat();
    Running::start(record::command(&options, output).stdin(Stdio::null()))
}

fn wait_until_it_records(trace: &Trace) {
    wait::until("the trace is active", || trace.read("start") == "1\n");
    wait::until("the instance is on", || {
        instances().first().is_some_and(|instance| {
            fs::read(instance.join("tracing_on")).is_ok_and(|text| text == b"1\n")
        })
    });
}

/// Waits for the recorder's thread that reads the kernel's events.
fn wait_until_it_reads(recorder: &Running) {
    let threads = format!("/proc/{}/task", recorder.0.id());
    wait::until("it reads", || {
        fs::read_dir(&threads).is_ok_and(|threads| threads.count() > 1)
    });
}

fn finish(mut recorder: Running) {
    let pid = Pid::from_raw(recorder.0.id().cast_signed());
    kill(pid, Signal::SIGINT).expect("asked to stop");
    let status = recorder.wait();
    assert!(status.success(), "{status}");
    assert_eq!(instances(), Vec::<PathBuf>::new(), "it has tidied up");
}

/// Requirements: F9
fn missing_tracefs_and_unknown_kernel_events_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let fails = |events: &str, expected: &[&str]| {
        let run = record::command(&["--kernel", events], &output)
            .args(["--", "true"])
            .output();
        let run = run.expect("it runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(125), "{said}");
        for expected in expected {
            assert!(said.contains(expected), "{said}");
        }
        assert!(!output.exists(), "nothing is left");
    };
    if !Path::new(TRACEFS).join("trace_clock").exists() {
        fails("sched:*", &["mount -t tracefs tracefs /sys/kernel/tracing"]);
    }
    mount_tracefs();
    fails(
        "sched:no_such_event",
        &["sched:no_such_event", "/available_events"],
    );
    fails("a b", &["\"a b\" is no pattern"]);
    assert_eq!(instances(), Vec::<PathBuf>::new());
}

/// The clocks of these traces, from their metadata.
fn clocks_of(recorded: &Path) -> BTreeSet<String> {
    let mut clocks = BTreeSet::new();
    for entry in fs::read_dir(recorded).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            clocks.append(&mut clocks_of(&path));
        } else if path.ends_with("metadata") {
            let text = fs::read(&path).expect("metadata");
            let text = String::from_utf8_lossy(&text);
            let (_, clock) = text.split_once("clock {").expect("a clock");
            clocks.insert(clock.split_once('}').expect("its end").0.to_owned());
        }
    }
    clocks
}

/// Both kinds of events have one clock: they are in the right order, also in `view`.
///
/// Requirements: F9
fn kernel_events_are_ordered_among_program_events() {
    mount_tracefs();
    let count = scaled(2000);
    let trace = Trace::create("both");
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let recorder = recorder(trace.name(), &[RENAME], &output);
    wait_until_it_records(&trace);
    let writer = Child::spawn(|_| {
        event::attach();
        for number in 0..count {
            assert_eq!(event::write(0, number), Outcome::Recorded);
            rename(number);
        }
    });
    let tid = writer.pid().as_raw() as u64;
    writer.join();
    finish(recorder);
    let read = babeltrace::read(&output);
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    let mut next = 0;
    for (at, event) in read.events.iter().enumerate() {
        let number = if event.name == RENAME {
            // Others may do that, too.
            if event.field("tid") != tid {
                continue;
            }
            renamed(event).map(|number| 2 * number + 1)
        } else {
            Some(2 * event.numbered().1)
        };
        let around = at.saturating_sub(5)..read.events.len().min(at + 5);
        assert_eq!(
            number,
            Some(next),
            "{:#?}\n{:?}",
            &read.events[around],
            clocks_of(&output)
        );
        next += 1;
    }
    assert_eq!(next, 2 * count);
    let lines = |program: &Path, arguments: &[&str]| {
        let printed = Command::new(program).args(arguments).arg(&output).output();
        let printed = printed.expect("it runs");
        assert!(printed.status.success(), "{printed:?}");
        printed.stdout
    };
    let viewed = lines(&program::path("usertrace"), &["view", "--modules"]);
    assert!(viewed == lines(Path::new("babeltrace2"), &[]));
}

/// The kernel's text of events: `comm-tid [cpu] flags time: event: field=value ...`
fn printed(text: &str) -> BTreeSet<String> {
    let mut expected = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (before, rest) = line.split_once(": ").expect("time");
        let (name, fields) = rest.split_once(": ").expect("event");
        let (_, tid) = before
            .split_once(" [")
            .expect("a CPU")
            .0
            .rsplit_once('-')
            .expect("thread");
        let tid = tid.trim();
        let value = |name: &str| {
            let (_, rest) = fields.split_once(&format!("{name}=")).expect("field");
            rest.split(' ').next().expect("a value").to_owned()
        };
        expected.insert(match name {
            "sched_process_fork" => {
                format!("{tid} fork {} {}", value("comm"), value("child_pid"))
            }
            "sched_process_exec" => format!("{tid} exec {} {}", value("filename"), value("pid")),
            "task_rename" => format!("{tid} rename {} {}", value("oldcomm"), value("newcomm")),
            other => panic!("{other}"),
        });
    }
    expected
}

/// The recorded events, in the form of [`printed`].
fn recorded(read: &Read) -> BTreeSet<String> {
    read.events
        .iter()
        .map(|event| {
            let tid = event.field("tid");
            match &event.name[..] {
                "sched:sched_process_fork" => format!(
                    "{tid} fork {} {}",
                    event.text("parent_comm"),
                    event.field("child_pid")
                ),
                "sched:sched_process_exec" => {
                    format!(
                        "{tid} exec {} {}",
                        event.text("filename"),
                        event.field("pid")
                    )
                }
                RENAME => format!(
                    "{tid} rename {} {}",
                    event.text("oldcomm"),
                    event.text("newcomm")
                ),
                other => panic!("{other}"),
            }
        })
        .collect()
}

/// The recorded events equal the kernel's own text output of the same time.
///
/// Requirements: F9
fn kernel_event_fields_equal_the_kernels_own_text() {
    mount_tracefs();
    let tracefs = Path::new(TRACEFS);
    let trace = Trace::create("printed");
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let events = [
        "sched:sched_process_fork",
        "sched:sched_process_exec",
        RENAME,
    ];
    let enable = |on: &str| {
        for event in events {
            let file = tracefs.join("events").join(event.replace(':', "/"));
            fs::write(file.join("enable"), on).expect("enable");
        }
    };
    let recorder = recorder(trace.name(), &[&events.join(",")], &output);
    wait_until_it_records(&trace);
    fs::write(tracefs.join("trace"), "").expect("cleared");
    enable("1");
    for _ in 0..20 {
        let status = Command::new("/bin/true").status().expect("it runs");
        assert!(status.success());
    }
    enable("0");
    let text = fs::read_to_string(tracefs.join("trace")).expect("text");
    fs::write(tracefs.join("trace"), "").expect("cleared");
    finish(recorder);
    let expected = printed(&text);
    assert!(expected.len() >= 40, "{text}");
    let read = babeltrace::read(&output);
    let got = recorded(&read);
    // The recording lasted a little longer than the text.
    let missing: Vec<_> = expected.difference(&got).collect();
    assert!(missing.is_empty(), "{missing:#?}\nof {got:?}");
}

/// Requirements: A10, F9
fn killed_recorder_repeats_and_omits_no_kernel_event() {
    mount_tracefs();
    let trace = Trace::create("kernel-killed");
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let mut random = Random::new();
    let recorder = || recorder(trace.name(), &[RENAME, "--kernel-buffer", "4096"], &output);
    let first = recorder();
    wait_until_it_records(&trace);
    let mut writer = Child::spawn(|link| {
        let mut number = 0;
        while !link.is_ready(nix::poll::PollTimeout::ZERO) {
            for _ in 0..10 {
                rename(number);
                number += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        link.send(number);
    });
    let mut running = Some(first);
    for _ in 0..from_env(MORE, scaled(KILLS)) {
        let recorder = running.take().unwrap_or_else(recorder);
        wait_until_it_reads(&recorder);
        std::thread::sleep(Duration::from_micros(random.below(50_000)));
        // Killed, without a warning.
        drop(recorder);
    }
    assert_eq!(instances().len(), 1, "the kernel goes on");
    let last = recorder();
    let threads = format!("/proc/{}/task", last.0.id());
    wait::until("it records", || {
        fs::read_dir(&threads).is_ok_and(|threads| threads.count() > 1)
    });
    writer.link.send(0);
    let count = writer.link.receive();
    let tid = writer.pid().as_raw() as u64;
    writer.join();
    finish(last);
    let read = babeltrace::read(&output);
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    let of_writer = read.events.iter().filter(|event| event.field("tid") == tid);
    let numbers: Vec<_> = of_writer.filter_map(renamed).collect();
    for (expected, &number) in (0..).zip(&numbers) {
        assert_eq!(number, expected);
    }
    assert_eq!(numbers.len() as u64, count);
    println!("{count} events");
}

/// A recorder to another directory gets its own events, and none that the kernel recorded before.
///
/// Requirements: F9
fn kernel_events_of_a_killed_recorder_are_in_no_other_recording() {
    mount_tracefs();
    let trace = Trace::create("kernel-left");
    let directory = tempfile::tempdir().expect("a directory");
    let killed = recorder(trace.name(), &[RENAME], &directory.path().join("killed"));
    wait_until_it_records(&trace);
    drop(killed);
    assert_eq!(instances().len(), 1);
    rename(1);
    let other = directory.path().join("other");
    let options = [
        "--trace",
        trace.name(),
        "--kernel",
        "sched:sched_process_exec",
    ];
    let run = record::command(&options, &other)
        .args(["--", "true"])
        .output();
    let run = run.expect("it runs");
    assert!(run.status.success(), "{run:?}");
    let read = babeltrace::read(&other);
    let names: BTreeSet<_> = read.events.iter().map(|event| &event.name[..]).collect();
    assert_eq!(names, BTreeSet::from(["sched:sched_process_exec"]));
    assert_eq!(instances(), Vec::<PathBuf>::new());
}

/// Requirements: F9
fn overwritten_kernel_events_are_counted() {
    mount_tracefs();
    let count = scaled(50_000);
    let trace = Trace::create("kernel-lost");
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let mut writer = Child::spawn(|link| {
        link.receive();
        (0..count).for_each(rename);
        link.send(0);
        link.receive();
    });
    let json = directory.path().join("summary");
    let options = [
        "--trace",
        trace.name(),
        "--pid",
        &writer.pid().to_string(),
        "--kernel",
        RENAME,
        "--kernel-buffer",
        "64",
        &format!("--json={}", json.display()),
    ];
    let mut recorder = Running::start(record::command(&options, &output).stdin(Stdio::null()));
    wait_until_it_records(&trace);
    let pid = Pid::from_raw(recorder.0.id().cast_signed());
    kill(pid, Signal::SIGSTOP).expect("it stops");
    writer.link.send(0);
    writer.link.receive();
    kill(pid, Signal::SIGCONT).expect("it goes on");
    writer.link.send(0);
    writer.join();
    // The only process that is recorded has ended.
    assert!(recorder.wait().success());
    assert_eq!(instances(), Vec::<PathBuf>::new());
    let read = babeltrace::read(&output);
    let numbers: Vec<_> = read.events.iter().filter_map(renamed).collect();
    // The last ones are there, each once.
    assert!(numbers.is_sorted() && numbers.last() == Some(&(count - 1)));
    assert_eq!(read.events.len(), numbers.len(), "no other process's");
    let lost = count - numbers.len() as u64;
    assert!(
        lost > 0 && read.discarded == lost,
        "{lost} of {count}, {}",
        read.discarded
    );
    let summary = fs::read_to_string(&json).expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    let kernel = &summary["kernel"];
    assert_eq!(kernel["events"], numbers.len());
    assert_eq!(kernel["lost"], lost);
    println!("{lost} of {count} lost");
}

/// As on a kernel without the patches: there is no control file system.
///
/// Requirements: F3, F9
fn kernel_events_are_recorded_without_trace_buffers() {
    mount_tracefs();
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let mut command = record::command(&["--kernel", RENAME], &output);
    command
        .arg("--")
        .arg(program::path("numbered"))
        .args(["--events", "100"]);
    // SAFETY: nothing but system calls.
    unsafe {
        command.pre_exec(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let (none, all) = (None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC);
            mount(none, "/", none, all, none)?;
            Ok(umount(CONTROL_FS)?)
        });
    }
    let run = command.output().expect("it runs");
    assert!(run.status.success(), "{run:?}");
    assert_eq!(instances(), Vec::<PathBuf>::new());
    let read = babeltrace::read(&output);
    let names: Vec<_> = read.events.iter().map(|event| &event.name[..]).collect();
    let first = read
        .events
        .iter()
        .position(|event| event.name == RENAME && event.text("newcomm") == "numbered");
    let first = first.expect("what the kernel did when the program began");
    let numbered = names.iter().filter(|name| **name == "test:numbered");
    assert_eq!(numbered.count(), 100);
    assert!(
        names[..first].iter().all(|name| *name == RENAME),
        "{names:?}"
    );
}
