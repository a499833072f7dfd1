//! What users type for triggers: `usertrace trigger` and `wait`, `--trigger`, and the daemon, which
//! writes snapshots and begins chunks when programs fire.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use usertrace_consumer::finished_chunks;
use usertrace_testing::babeltrace;
use usertrace_testing::wait;
use usertrace_tests::control::{Trace, remove_all};
use usertrace_tests::program;
use usertrace_tests::running::Running;

use crate::{Case, cases};

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    trigger_of_a_command_stops_the_flight_recorder,
    wait_counts_each_firing_of_all_processes,
    wait_sleeps_until_the_trace_is_removed,
    group_that_may_read_can_wait,
    daemon_writes_a_snapshot_after_each_firing,
    daemon_begins_a_chunk_after_the_event,
    daemon_goes_on_when_snapshots_have_no_room,
];

/// Runs the command, and returns its status and its output.
fn usertrace(arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(program::path("usertrace"));
    let output = command.args(arguments).output().expect("it runs");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    (output.status.code().expect("not killed"), said)
}

/// Runs the command, which must succeed, and returns its output.
fn done(arguments: &[&str]) -> String {
    let (status, said) = usertrace(arguments);
    assert_eq!(status, 0, "{arguments:?}: {said}");
    said
}

/// Runs a program that writes events with the numbers from 0 on.
fn numbered(count: u64) {
    let mut command = Command::new(program::path("numbered"));
    let output = command.args(["--events", &count.to_string()]).output();
    assert!(output.expect("it runs").status.success());
}

/// A row of `usertrace trigger list`: matched, fired, suppressed.
fn counts(text: &str) -> [u64; 3] {
    let said = done(&["trigger", "list", "--json", "mine"]);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let triggers = json.as_array().expect("an array");
    let mut of_text = triggers.iter().filter(|of| of["text"] == text);
    let trigger = of_text.next().unwrap_or_else(|| panic!("{text}: {said}"));
    ["matched", "fired", "suppressed"].map(|key| trigger[key].as_u64().expect("a number"))
}

/// The trigger and `--trigger` of `start`; what is in the rings; adding, listing, removing.
///
/// Requirements: E1, E4
fn trigger_of_a_command_stops_the_flight_recorder() {
    remove_all();
    let text = "test:numbered if number == 41 then stop once";
    done(&["start", "--flight", "--trigger", text, "mine"]);
    numbered(100);
    let (status, said) = usertrace(&["status", "mine"]);
    assert_eq!(status, 3, "it is not active: {said}");
    assert!(
        said.contains(&format!("{text} (fired once, spent)")),
        "{said}"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let out = out.to_str().expect("text");
    done(&["snapshot", "-q", "-o", out, "mine"]);
    let read = babeltrace::read(Path::new(out));
    // The library checks at each event whether the trace is active.
    let last = read.events.last().expect("events").numbered().1;
    assert_eq!(
        read.events.len(),
        42,
        "the event that fired is the last: {last}"
    );
    assert_eq!(last, 41);
    assert_eq!(counts(text), [1, 1, 0]);

    let added = done(&[
        "trigger",
        "add",
        "mine",
        "other then start",
        "other then notify every 3",
    ]);
    let added: Vec<_> = added
        .lines()
        .map(|line| line.split_once(' ').expect("a number"))
        .collect();
    assert_eq!(
        (added[0].1, added[1].1),
        ("other then start", "other then notify every 3")
    );
    assert_ne!(added[0].0, added[1].0);
    let listed = done(&["trigger", "list", "mine"]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    done(&["trigger", "remove", "mine", added[0].0]);
    let (status, said) = usertrace(&["trigger", "remove", "mine", added[0].0]);
    assert!(status == 1 && said.contains("has no trigger"), "{said}");
    assert_eq!(done(&["trigger", "list", "mine"]).lines().count(), 3);
    // What was listed, numbers included, can be added.
    let file = "/sys/kernel/ltt/mine/triggers";
    let shown = fs::read_to_string(file).expect("text");
    done(&[
        "trigger",
        "add",
        "mine",
        shown.lines().next().expect("a line"),
    ]);
    done(&["trigger", "remove", "--all", "mine"]);
    assert_eq!(fs::read_to_string(file).expect("text"), "");
    for n in 0..8 {
        done(&["trigger", "add", "mine", &format!("other{n} then stop")]);
    }
    let (status, said) = usertrace(&["trigger", "add", "mine", "one:more then stop"]);
    assert!(status == 1 && said.contains("No space left"), "{said}");
    // A trace that was not started is allocated for one that starts it.
    let _new = Trace::create("new");
    let said = done(&["trigger", "add", "new", "test:numbered then start once"]);
    assert!(said.contains("is allocated now"), "{said}");
    numbered(10);
    assert_eq!(usertrace(&["status", "new"]).0, 0, "it is active");
    // The setup is saved, and works after load.
    let saved = done(&["save", "new"]);
    assert!(
        saved.contains("\ntriggers = [\"test:numbered then start once\"]\n"),
        "{saved}"
    );
    let file = directory.path().join("new.toml");
    fs::write(&file, saved.replace("started = true", "started = false")).expect("a file");
    done(&["load", "--replace", file.to_str().expect("text")]);
    assert_eq!(usertrace(&["status", "new"]).0, 3, "it is not active");
    numbered(10);
    assert_eq!(usertrace(&["status", "new"]).0, 0, "it is active");
}

/// A program that fires between two steps of `wait` wakes it.
///
/// Requirements: E1, E4
fn wait_counts_each_firing_of_all_processes() {
    remove_all();
    let text = "test:numbered if number == 2 then notify";
    done(&["start", "--trigger", text, "mine"]);
    // A burst of ten is not suppressed.
    for count in [1, 2, 10] {
        std::thread::sleep(Duration::from_millis(1100));
        let number = count.to_string();
        let mut waiting = waiting(&["--count", &number, "mine"]);
        let processes: Vec<_> = (0..count)
            .map(|_| {
                let mut command = Command::new(program::path("numbered"));
                Running::start(command.args(["--events", "3"]).stdout(Stdio::null()))
            })
            .collect();
        for mut process in processes {
            assert!(process.wait().success());
        }
        assert_eq!(waiting.wait().code(), Some(0), "{count}");
    }
    assert_eq!(counts(text), [13, 13, 0]);
    let (status, said) = usertrace(&["wait", "--timeout", "0.3", "mine"]);
    assert!(status == 3 && said.contains("in time"), "{said}");
    let (status, said) = usertrace(&["wait", "--trigger", "0", "mine"]);
    assert!(status == 1 && said.contains("has no trigger 0"), "{said}");
}

/// Starts `usertrace wait`, and waits until it waits.
fn waiting(arguments: &[&str]) -> Running {
    let mut command = Command::new(program::path("usertrace"));
    let waiting = Running::start(command.arg("wait").args(arguments));
    let pid = waiting.0.id();
    wait::until("it polls", || {
        let place = fs::read_to_string(format!("/proc/{pid}/wchan"));
        place.is_ok_and(|place| place.contains("poll"))
    });
    waiting
}

/// Clock ticks that a process has run.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    [11, 12]
        .iter()
        .map(|&n: &usize| fields[n].parse::<u64>().expect("ticks"))
        .sum()
}

/// Requirements: E1, E4
fn wait_sleeps_until_the_trace_is_removed() {
    remove_all();
    let once = "test:numbered then notify once";
    let trace = Trace::started("mine");
    trace
        .write("triggers", "other then notify")
        .expect("a trigger");
    trace.write("triggers", once).expect("a trigger");
    // One that has fired before does not count.
    numbered(3);
    let mut waiting = waiting(&["mine"]);
    let before = ticks(waiting.0.id());
    std::thread::sleep(Duration::from_secs(2));
    assert!(waiting.0.try_wait().expect("a child").is_none(), "it waits");
    assert!(ticks(waiting.0.id()) - before < 10, "it sleeps");
    trace.try_remove().expect("it is there");
    assert_eq!(waiting.wait().code(), Some(1));
    let trace = Trace::started("mine");
    trace.write("triggers", once).expect("a trigger");
    numbered(3);
    let (status, said) = usertrace(&["wait", "mine"]);
    assert!(
        status == 1 && said.contains("each was to fire once, and has"),
        "{said}"
    );
}

/// Somebody who may read the trace, and nothing else.
///
/// Requirements: E1, F5
fn group_that_may_read_can_wait() {
    remove_all();
    const USER: u32 = 1234;
    let public = tempfile::tempdir().expect("a directory");
    let all = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(public.path(), all(0o755)).expect("permissions");
    let copy = public.path().join("usertrace");
    fs::copy(program::path("usertrace"), &copy).expect("a copy");
    let trace = Trace::started("mine");
    trace
        .write("triggers", "test:numbered then notify")
        .expect("a trigger");
    let wait = || {
        let mut command = Command::new(&copy);
        command.args(["wait", "--timeout", "20", "mine"]);
        command.uid(USER).gid(USER);
        command
    };
    let refused = wait().output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    for file in ["", "fired", "triggers"] {
        let path = trace.path().join(file);
        std::os::unix::fs::chown(&path, None, Some(USER)).expect("a group");
        let mode = if file.is_empty() { 0o750 } else { 0o640 };
        fs::set_permissions(&path, all(mode)).expect("permissions");
    }
    let mut waiting = Running::start(&mut wait());
    // It may not have read the counts yet: let programs fire until it ends.
    let ended = wait::within(wait::LIMIT, || {
        numbered(1);
        waiting.0.try_wait().expect("a child")
    });
    assert_eq!(ended.expect("it ends").code(), Some(0));
    let removed = Command::new(&copy)
        .args(["trigger", "remove", "--all", "mine"])
        .uid(USER)
        .gid(USER)
        .output()
        .expect("it runs");
    assert_eq!(removed.status.code(), Some(1), "it may not change them");
}

/// A daemon that runs in a directory.
struct Daemon {
    running: Running,
    log: PathBuf,
}

impl Daemon {
    fn start(directory: &Path, log: &str, options: &[&str]) -> Self {
        let log = directory.join(log);
        let mut command = Command::new(program::path("usertrace"));
        command.args(["daemon", "--output", "out"]).args(options);
        command.current_dir(directory).env_remove("NOTIFY_SOCKET");
        let file = File::create(&log).expect("a file");
        Self {
            running: Running::start(command.stderr(file)),
            log,
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }

    /// Waits until it has said this so often.
    fn wait_for(&self, what: &str, times: usize) {
        let found = wait::within(wait::LIMIT, || {
            (self.said().matches(what).count() >= times).then_some(())
        });
        assert!(found.is_some(), "{what}: {}", self.said());
    }

    /// Ends it, and returns what it has said.
    fn end(mut self) -> String {
        let pid = Pid::from_raw(self.running.0.id().cast_signed());
        kill(pid, Signal::SIGTERM).expect("it runs");
        assert!(self.running.wait().success(), "{}", self.said());
        self.said()
    }
}

/// The snapshots in `out`, and how many events each has.
fn snapshots(out: &Path) -> Vec<(PathBuf, usize)> {
    let paths = finished_chunks(&out.join("snapshots/mine")).expect("a directory");
    let count = |path: PathBuf| {
        let events = babeltrace::read(&path).events.len();
        (path, events)
    };
    paths.into_iter().map(count).collect()
}

/// Requirements: C5, E1, E4
fn daemon_writes_a_snapshot_after_each_firing() {
    remove_all();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let out = path.join("out");
    let text = "test:numbered if number == 5 then snapshot";
    let daemon = Daemon::start(
        path,
        "first",
        &[
            "--start",
            "mine",
            "--flight",
            "--only-triggers",
            "--trigger-interval",
            "1h",
            "--trigger",
            text,
        ],
    );
    wait::until("it has a trigger", || {
        fs::read_to_string("/sys/kernel/ltt/mine/triggers").is_ok_and(|text| !text.is_empty())
    });
    numbered(6);
    daemon.wait_for("mine: snapshot in ", 1);
    let first = snapshots(&out);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].1, 6);
    let why = fs::read_to_string(first[0].0.join("trigger.txt")).expect("text");
    assert!(
        why.contains(text) && why.contains("fired once so far, last 20"),
        "{why}"
    );
    // Two within the interval, which is longer than the test: neither has a snapshot.
    numbered(6);
    numbered(6);
    daemon.wait_for("a trigger fired again, for which a snapshot follows in ", 1);
    let said = daemon.end();
    assert_eq!(said.matches("mine: snapshot in ").count(), 1, "{said}");
    // The next daemon writes one for both. It writes another one for what fires then, within the
    // interval or not.
    let options = ["--only-triggers", "--trigger-interval", "3s"];
    let daemon = Daemon::start(path, "next", &options);
    daemon.wait_for("mine: snapshot in ", 1);
    numbered(6);
    daemon.wait_for("mine: snapshot in ", 2);
    let counts: Vec<_> = snapshots(&out).iter().map(|of| of.1).collect();
    assert_eq!(counts, [6, 18, 24]);
    let said = daemon.end();
    assert!(said.contains("(triggers fired 2 times)"), "{said}");
    assert!(!out.join("mine").exists(), "nothing is recorded");
    // What fires while no daemon runs is answered by the next one, once.
    numbered(6);
    let options = [
        "--only-triggers",
        "--trigger-interval",
        "1s",
        "--keep-snapshots",
        "2",
    ];
    let daemon = Daemon::start(path, "second", &options);
    daemon.wait_for("mine: snapshot in ", 1);
    daemon.wait_for("was removed, as the oldest", 2);
    daemon.end();
    let left = snapshots(&out);
    assert_eq!(left.iter().map(|of| of.1).collect::<Vec<_>>(), [24, 30]);
    assert!(!first[0].0.exists());
    let daemon = Daemon::start(path, "third", &options);
    std::thread::sleep(Duration::from_secs(3));
    let said = daemon.end();
    assert!(!said.contains("snapshot"), "{said}");
    // A killed daemon's snapshot is written again.
    numbered(6);
    fs::create_dir(out.join("snapshots/mine/20991231T000000Z-900000.current"))
        .expect("a directory");
    let daemon = Daemon::start(path, "fourth", &options);
    daemon.wait_for("mine: snapshot in ", 1);
    assert!(
        !out.join("snapshots/mine/20991231T000000Z-900000.current")
            .exists()
    );
    // A trace that is removed, and another one of its name.
    done(&["destroy", "mine"]);
    done(&["start", "--flight", "--trigger", text, "mine"]);
    numbered(6);
    daemon.wait_for("mine: snapshot in ", 2);
    daemon.end();
    assert_eq!(snapshots(&out).last().expect("snapshots").1, 6);
}

/// The event that fires is in the chunk that ends.
///
/// Requirements: C5, E1, E4
fn daemon_begins_a_chunk_after_the_event() {
    remove_all();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    done(&[
        "start",
        "--trigger",
        "test:numbered if number == 9 then rotate",
        "mine",
    ]);
    let daemon = Daemon::start(path, "log", &["--trigger-interval", "1s"]);
    daemon.wait_for("mine: recorded to ", 1);
    for n in 1..4 {
        std::thread::sleep(Duration::from_millis(1100));
        let mut command = Command::new(program::path("numbered"));
        command.args(["--events", "10", "--stay"]);
        let mut stays = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let output = stays.0.stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("text");
        daemon.wait_for(" is finished", n);
        assert_eq!(
            finished_chunks(&path.join("out/mine"))
                .expect("chunks")
                .len(),
            n
        );
        stays
            .0
            .stdin
            .take()
            .expect("a pipe")
            .write_all(b"\n")
            .expect("it reads");
        assert!(stays.wait().success());
    }
    let said = daemon.end();
    assert_eq!(
        said.matches("a new chunk begins (triggers fired once)")
            .count(),
        3,
        "{said}"
    );
    let chunks = finished_chunks(&path.join("out/mine")).expect("chunks");
    for chunk in &chunks[..3] {
        assert_eq!(babeltrace::read(chunk).events.len(), 10);
    }
}

/// Requirements: C5, F1
fn daemon_goes_on_when_snapshots_have_no_room() {
    remove_all();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let small = path.join("out/snapshots");
    fs::create_dir_all(&small).expect("a directory");
    // No room for a directory more than that of the trace.
    let flags = MsFlags::empty();
    let mounted = mount(
        Some("none"),
        &small,
        Some("tmpfs"),
        flags,
        Some("size=64k,nr_inodes=4"),
    );
    mounted.expect("tmpfs");
    done(&[
        "start",
        "--flight",
        "--trigger",
        "test:numbered if number == 5 then snapshot",
        "mine",
    ]);
    let daemon = Daemon::start(
        path,
        "log",
        &["--only-triggers", "--trigger-interval", "1s"],
    );
    numbered(6);
    daemon.wait_for("to be tried again: ", 1);
    assert!(daemon.said().contains("No space left"), "{}", daemon.said());
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(
        daemon.said().matches("to be tried again: ").count(),
        1,
        "{}",
        daemon.said()
    );
    // There is room again.
    let room = Some("size=10M,nr_inodes=1000");
    mount(
        Some("none"),
        &small,
        Some("tmpfs"),
        MsFlags::MS_REMOUNT,
        room,
    )
    .expect("tmpfs");
    daemon.wait_for("mine: snapshot in ", 1);
    assert_eq!(
        snapshots(&path.join("out")).last().expect("a snapshot").1,
        6
    );
    daemon.end();
    umount(&small).expect("it is mounted");
}
