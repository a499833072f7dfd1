//! Sessions of a new user in a real terminal, with the kernel's buffers (E1, F1); and the commands
//! that only observe: lists of events (B3, E4, E6), and their rates (E7).

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use usertrace_testing::{babeltrace, wait};
use usertrace_tests::control::Trace;
use usertrace_tests::guest::scaled;
use usertrace_tests::program;
use usertrace_tests::record::Recorder;
use usertrace_tests::running::Running;

use crate::{Case, cases};
use usertrace_testing::relayd::Relayd;
use usertrace_testing::terminal::Terminal;
use usertrace_testing::{documents, examples};

pub(crate) const CASES: &[Case] = cases![list_asks_processes_for_missing_descriptions];

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    list_shows_the_events_of_processes,
    top_counts_without_consuming,
    top_marks_estimates,
    command_line_controls_and_reads_traces,
    record_and_top_update_the_terminal,
    examples_of_the_manual_work,
    commands_of_the_documents_work,
];

fn snapshot(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/guest-tests/sessions");
    directory.join(format!("{name}.txt"))
}

fn terminal(size: (usize, usize)) -> Terminal {
    let programs = ["usertrace", "server"].map(|name| (name, program::path(name)));
    Terminal::new(size, &programs, &[])
}

/// Requirements: E1, F1
fn command_line_controls_and_reads_traces() {
    let mut terminal = terminal((120, 40));
    for command in [
        "usertrace doctor | head -n 4",
        "usertrace list",
        "usertrace start mine -e 'shop:*'",
        "server 20",
        "usertrace status mine",
        "usertrace list",
        "usertrace list --events mine",
        "usertrace filter mine 'shop:*' '!shop:tick'",
        "usertrace filter mine",
        "server 20",
        "usertrace list --events mine | grep tick",
        "usertrace snapshot mine -o now",
        "usertrace view now | tail -n 1",
        "usertrace stop mine",
        "usertrace status mine >/dev/null; echo $?",
        "usertrace start mine; usertrace status mine >/dev/null; echo $?",
        "usertrace top -b -n 1 -i 0.2 mine",
        "usertrace record -o traces --trace mine -- server 20",
        "usertrace list",
        "usertrace destroy mine",
        "usertrace record -o other -- server 3",
        // Errors.
        "usertrace status mine",
        "usertrace stop mine",
        "usertrace destroy mine yours",
        "usertrace filter mine 'shop:*'",
        "usertrace snapshot mine",
        "usertrace list mine",
        "usertrace list --events mine",
        "usertrace top mine",
        "usertrace start a/b",
        "usertrace start -e 'a/b' mine",
        "usertrace start --subbuf-size 5000 mine",
        "usertrace start --context nothing mine",
        "usertrace list",
        "usertrace start mine && usertrace start --subbuf-size 64k mine",
        "usertrace filter mine 'a/b'",
        "usertrace record -o traces -- server 3",
        "usertrace record -p 4194305",
        "usertrace record -- ./nothing",
        "usertrace destroy mine",
    ] {
        terminal.run(command);
    }
    terminal.check(&snapshot("hand"));
}

/// The screen of `top` has a row for each of these events, with a rate.
fn has_rates(screen: &str, events: &[&str]) -> bool {
    let is_rate = |event: &&str| {
        screen.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.last() == Some(event) && words.get(1).is_some_and(|rate| *rate != "0")
        })
    };
    events.iter().all(is_rate)
}

/// Requirements: F1
fn record_and_top_update_the_terminal() {
    let mut terminal = terminal((120, 24));
    terminal.run("server &");
    terminal.enter("usertrace record -o traces");
    let line = |screen: &str| {
        screen
            .lines()
            .find(|line| line.contains(" events ("))
            .map(str::to_owned)
    };
    let screen = terminal.until("it says how far it is", |screen| line(screen).is_some());
    terminal.keep_screen("a line that changes", &screen);
    let first = line(&screen);
    terminal.until("it says so again", |screen| line(screen) != first);
    terminal.press(&["C-c"]);
    let is_over = |screen: &str| screen.trim_end().ends_with("\n$");
    let screen = terminal.until("it ends", is_over);
    // The line is gone.
    assert_eq!(line(&screen), None, "{screen}");
    terminal.keep_screen("the end of a recording", &screen);

    terminal.run("usertrace start mine; usertrace record -q --trace mine -o more &");
    let state = |terminal: &mut Terminal| {
        terminal.run("stty -g >state");
        std::fs::read_to_string(terminal.home().join("state")).expect("a file")
    };
    let before = state(&mut terminal);
    terminal.resize(80, 24);
    terminal.enter("usertrace top -i 0.5 mine");
    let both = ["shop:served", "shop:tick"];
    let screen = terminal.until("there are rates", |screen| {
        has_rates(screen, &both) && screen.trim_end().ends_with("h: help")
    });
    terminal.keep_screen("top", &screen);
    terminal.press(&["e"]);
    terminal.until("it is sorted", |screen| screen.contains("sort: event"));
    terminal.press(&["/"]);
    terminal.until("a filter is asked for", |screen| {
        screen.contains("those that have: _")
    });
    terminal.press(&["t", "i", "c", "k", "Enter"]);
    terminal.until("it is filtered", |screen| {
        has_rates(screen, &both[1..]) && !screen.contains("served")
    });
    terminal.resize(40, 10);
    let screen = terminal.until("it is small", |screen| {
        screen.lines().count() <= 10
            && has_rates(screen, &both[1..])
            && !screen.contains("MEAN")
            && screen.trim_end().ends_with("shows: tick; q: quit")
    });
    terminal.keep_screen("40 columns, 10 rows", &screen);
    assert!(
        screen.lines().all(|line| line.chars().count() <= 40),
        "{screen}"
    );
    terminal.press(&["q"]);
    terminal.until("it ends", is_over);
    assert!(terminal.is_plain());
    assert_eq!(state(&mut terminal), before);
    terminal.resize(120, 24);
    terminal.run("kill %2; wait %2; usertrace destroy mine; kill %1");
    terminal.check(&snapshot("follow"));
}

fn usertrace(arguments: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new(program::path("usertrace"));
    let output = command
        .args(arguments)
        .arg("--json")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout);
    (
        output.status.code(),
        json.unwrap_or_else(|error| panic!("{error}: {said}")),
    )
}

/// The events of a process: names, and whether a trace wants them.
fn wanted(process: &Value) -> Vec<(&str, bool)> {
    let events = process["tracepoints"].as_array().expect("events").iter();
    events
        .map(|event| {
            (
                event["name"].as_str().expect("text"),
                event["wanted"] == true,
            )
        })
        .collect()
}

fn server(variables: &[(&str, &str)], arguments: &[&str]) -> Running {
    let mut command = Command::new(program::path("server"));
    command
        .args(arguments)
        .envs(variables.iter().copied())
        .stdout(Stdio::null());
    Running::start(&mut command)
}

/// Requirements: B3, E4
fn list_shows_the_events_of_processes() {
    // No process is in a trace. One has a control channel, and one has not.
    let asked = server(&[("USERTRACE_CONTROL", "thread")], &[]);
    let silent = server(&[], &[]);
    check_untraced(&asked, &silent);

    let trace = Trace::create("listed");
    trace.write("filter", "!shop:tick").expect("a filter");
    trace.write("filter", "shop:served").expect("a filter");
    trace.start();
    let directory = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&trace, &directory.path().join("trace"));
    let consumed = || trace.stats().rings.iter().any(|ring| ring.consumed > 0);
    wait::until("it reads", consumed);
    check_traced(&trace);
    drop(recorder);
    drop((asked, silent));
    wait::until("they have ended", || {
        let (status, list) = listed(&trace);
        status == Some(0) && list.len() == 2 && list.iter().all(|process| process["dead"] == true)
    });
    let (_, list) = usertrace(&["list", "--events"]);
    let pids: Vec<_> = list["programs"]
        .as_array()
        .expect("programs")
        .iter()
        .map(|p| &p["comm"])
        .collect();
    assert!(!pids.iter().any(|comm| **comm == "server"), "{list}");
}

/// The status of a list of a trace's events, and the processes in the list.
fn listed(trace: &Trace) -> (Option<i32>, Vec<Value>) {
    let (status, list) = usertrace(&["list", "--events", trace.name()]);
    let processes = list["traces"][0]["processes"].as_array();
    (status, processes.expect("processes").clone())
}

/// Lists the events of two untraced processes: one with a control channel, one without.
fn check_untraced(asked: &Running, silent: &Running) {
    let of = |list: &Value, running: &Running| -> Value {
        let programs = list["programs"].as_array().expect("programs").iter();
        let mut of_it = programs.filter(|program| program["pid"] == running.0.id());
        of_it.next().cloned().unwrap_or_default()
    };
    let list = wait::until_some("it can be asked", || {
        let (status, list) = usertrace(&["list", "--events"]);
        assert_eq!(status, Some(3), "{list}");
        (of(&list, asked)["told_by"] == "process" && !of(&list, silent).is_null()).then_some(list)
    });
    assert_eq!(
        wanted(&of(&list, asked)),
        [("shop:served", false), ("shop:tick", false)]
    );
    let problem = of(&list, silent)["problems"][0]
        .as_str()
        .expect("a problem")
        .to_owned();
    assert!(
        problem.contains("has no control channel; USERTRACE_CONTROL=signal"),
        "{problem}"
    );
}

/// Lists the events of two processes in a trace. Their descriptions stay, also after they were
/// read.
fn check_traced(trace: &Trace) {
    let (status, before) = listed(trace);
    assert_eq!((status, before.len()), (Some(0), 2), "{before:?}");
    for process in &before {
        assert_eq!(process["told_by"], "trace");
        assert_eq!(
            wanted(process),
            [("shop:served", true), ("shop:tick", false)]
        );
        let fields = &process["tracepoints"][0]["fields"];
        assert_eq!(
            fields[2],
            serde_json::json!({ "type": "str", "name": "path" })
        );
        assert_eq!(process["tracepoints"][0]["loglevel"], 6);
    }
    // The list consumed and lost nothing.
    trace.write("filter_mask", "0x4000").expect("a mask");
    trace.write("filter", "1").expect("a filter");
    let (_, masked) = listed(trace);
    assert_eq!(
        wanted(&masked[0]),
        [("shop:served", false), ("shop:tick", true)]
    );
    trace.write("filter_mask", "0xffffffff").expect("a mask");
}

/// A channel that is too small for all descriptions.
///
/// Requirements: B3, E6
fn list_asks_processes_for_missing_descriptions() {
    let trace = Trace::create("small");
    trace.set_geometry("control", 4096, 2);
    trace.start();
    let crowd = |variables: &[(&str, &str)]| {
        // A CPU has a ring: all descriptions are to be in one.
        let mut command = Command::new("taskset");
        let command = command.args(["-c", "0"]).arg(program::path("crowd"));
        let command = command
            .envs(variables.iter().copied())
            .stdin(Stdio::piped());
        Running::start(command)
    };
    let (asked, silent) = (crowd(&[("USERTRACE_CONTROL", "thread")]), crowd(&[]));
    let process = |running: &Running| {
        let (status, list) = usertrace(&["list", "--events", "small"]);
        let processes = list["traces"][0]["processes"]
            .as_array()
            .expect("processes")
            .iter();
        let mut of_it = processes.filter(|process| process["pid"] == running.0.id());
        (status, of_it.next().cloned())
    };
    let told = wait::until_some("all is told", || {
        process(&asked).1.filter(|p| p["told_by"] == "both")
    });
    assert_eq!(told["problems"].as_array().map(Vec::len), Some(0), "{told}");
    assert_eq!(wanted(&told).len(), 48);
    let (status, part) = wait::until_some("it is there", || match process(&silent) {
        (status, Some(part)) => Some((status, part)),
        _ => None,
    });
    assert_eq!(status, Some(3));
    assert!((1..48).contains(&wanted(&part).len()), "{part}");
    let problems = part["problems"].to_string();
    assert!(
        problems.contains("no control channel") && problems.contains("no room"),
        "{problems}"
    );
}

/// The last total of an event in the lines of `top --json`, over all processes, and whether any
/// part of it is an estimate.
///
/// `top` drops a process ten seconds after its end, so the last line may not have the event.
fn totals(lines: &str, event: &str) -> (u64, bool) {
    let totals = lines.lines().rev().find_map(|line| {
        let json: Value = serde_json::from_str(line).expect("JSON");
        let rows = json["rows"].as_array().expect("rows").iter();
        let rows = rows.filter(|row| row["event"] == event).map(|row| {
            let total = row["total"].as_u64().expect("a number");
            (total, row["total_is_estimate"] == true)
        });
        rows.reduce(|(total, estimate), (more, too)| (total + more, estimate || too))
    });
    totals.unwrap_or((0, false))
}

/// Requirements: E7
fn top_counts_without_consuming() {
    for (scope, subbufs) in [("cpu", 16), ("thread", 16), ("global", 16)] {
        let trace = Trace::started_of("counted", scope, 65536, subbufs);
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("trace");
        let recorder = Recorder::start(&trace, &output);
        let top = Top::start("counted");
        // Events of an existing process count from `top`'s start.
        top.wait_for_lines(1);
        let count = scaled(20_000);
        let mut numbered = Command::new(program::path("numbered"));
        numbered
            .args(["--events", &count.to_string(), "--threads", "2", "--stay"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let numbered = Running::start(&mut numbered);
        // A process that ends before `top` looks again is not counted.
        wait::until("it was found", || top.has_open(&trace));
        let written = written_by(numbered);
        wait::until("it was read", || trace.stats().processes.is_empty());
        // `top` closes the files of a process that has ended.
        wait::until("it has nothing open", || !top.has_open(&trace));
        top.wait_for_lines(1);
        recorder.finish(&trace);
        let lines = top.end(&trace);
        let read = babeltrace::read(&output);
        assert_eq!(
            (read.events.len() as u64, read.discarded),
            (written, 2 * count - written),
            "{scope}"
        );
        let (total, is_estimate) = totals(&lines, "test:numbered");
        if is_estimate {
            let error = total.abs_diff(written) as f64 / written as f64;
            assert!(error < 0.2, "{scope}: {total} of {written}");
        } else {
            assert_eq!(total, written, "{scope}: {lines}");
        }
        println!("{scope}: {total} of {written}, estimated: {is_estimate}");
    }
}

/// How many events a program recorded.
fn written_by(mut numbered: Running) -> u64 {
    drop(numbered.0.stdin.take());
    let mut said = String::new();
    let mut output = numbered.0.stdout.take().expect("piped");
    output.read_to_string(&mut said).expect("text");
    let _ = numbered.wait();
    let mut words = said.split_whitespace().skip(1);
    words
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{said}"))
}

/// A ring that is overwritten faster than `top` reads, which is stopped meanwhile.
///
/// Requirements: E7
fn top_marks_estimates() {
    let trace = Trace::create("fast");
    trace.write("main/scope", "global").expect("a scope");
    trace.set_geometry("main", 4096, 4);
    trace.write("main/flight", "1").expect("flight");
    trace.start();
    let top = Top::start("fast");
    let pid = |of: &Running| Pid::from_raw(of.0.id().cast_signed());
    let server = server(&[], &[]);
    let head = || {
        trace
            .stats()
            .rings
            .iter()
            .map(|ring| ring.head)
            .max()
            .unwrap_or(0)
    };
    wait::until("it is counted", || {
        totals(&top.lines(), "shop:served").0 > 0
    });
    kill(pid(&top.running), Signal::SIGSTOP).expect("stopped");
    // Several rounds of the ring.
    let before = head();
    wait::until("it is overwritten", || head() > before + 10 * 4 * 4096);
    kill(pid(&top.running), Signal::SIGCONT).expect("it goes on");
    top.wait_for_lines(2);
    // `top` may have counted the next line before the server stopped. The one after that has all.
    kill(pid(&server), Signal::SIGSTOP).expect("stopped");
    let all = head();
    top.wait_for_lines(2);
    drop(server);
    let lines = top.end(&trace);
    let (total, is_estimate) = totals(&lines, "shop:served");
    assert!(is_estimate, "{lines}");
    // A record of it has 40 bytes, and for each ten there is a tick of 24; headers and padding are
    // few.
    let expected = all * 10 / 424;
    assert!(
        total.abs_diff(expected) < expected / 4,
        "{total}, and {expected} fit"
    );
    println!("{total} estimated, {expected} fit");
}

/// `top --json`, until the trace is gone.
struct Top {
    running: Running,
    directory: tempfile::TempDir,
}

impl Top {
    fn start(trace: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let output = std::fs::File::create(directory.path().join("lines")).expect("a file");
        let mut top = Command::new(program::path("usertrace"));
        top.args(["top", "--json", "--interval", "0.2", trace])
            .stdout(output);
        Self {
            running: Running::start(&mut top),
            directory,
        }
    }

    /// The whole lines that `top` has written so far.
    fn lines(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("lines")).expect("text");
        let len = text.rfind('\n').map_or(0, |end| end + 1);
        text[..len].to_owned()
    }

    /// Waits until `top` has written `more` lines: it writes one at each interval.
    fn wait_for_lines(&self, more: usize) {
        let count = || self.lines().lines().count();
        let before = count();
        wait::until("top writes lines", || count() >= before + more);
    }

    /// Does it have a file of the trace open?
    fn has_open(&self, trace: &Trace) -> bool {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.running.0.id()))
            .into_iter()
            .flatten();
        let mut links = fds
            .flatten()
            .filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links.any(|link| link.starts_with(trace.path()))
    }

    /// Its output.
    fn end(mut self, trace: &Trace) -> String {
        trace.try_remove().expect("removed");
        let status = self.running.wait();
        assert!(status.success(), "{status}: {}", self.lines());
        self.lines()
    }
}

/// The commands of README and the documents, typed literally.
///
/// Requirements: E1, F1
fn commands_of_the_documents_work() {
    crate::kernel_events::mount_tracefs();
    let libraries = program::path("libusertrace_malloc.so");
    let environment = documents::Environment {
        repository: &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
        usertrace: program::path("usertrace"),
        server: program::path("server"),
        libraries: libraries.parent().map(Path::to_owned),
        is_patched: true,
        user: None,
    };
    let done = documents::check(&environment, &usertrace_tests::control::remove_all);
    assert!(done > 40, "{done}");
}

/// The examples of the manual, typed literally.
///
/// Requirements: E1, F1
fn examples_of_the_manual_work() {
    let usertrace = program::path("usertrace");
    let mut done = 0;
    for command in examples::COMMANDS {
        for line in examples::of(&usertrace, command) {
            if examples::needs_crash(&line) {
                assert_eq!(command, "extract", "{line}");
                continue;
            }
            example(command, &line);
            done += 1;
        }
    }
    assert!(done > 40, "{done}");
}

fn example(command: &str, line: &str) {
    usertrace_tests::control::remove_all();
    let relay = examples::needs_relay(line).then(Relayd::start);
    let line = &relay.as_ref().map_or(line.to_owned(), |relay| {
        examples::with_relay(line, &relay.address())
    });
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("bin")).expect("a directory");
    for (name, place) in [("usertrace", "bin/usertrace"), ("server", "server")] {
        std::os::unix::fs::symlink(program::path(name), at(place)).expect("a link");
    }
    std::fs::write(at("Makefile"), "all:\n\t./server 3\n").expect("a file");
    let libraries = program::path("libusertrace_malloc.so");
    let libraries = libraries
        .parent()
        .and_then(Path::to_str)
        .expect("text")
        .to_owned();
    let run = |line: &str| {
        examples::run(
            line,
            directory.path(),
            &[("USERTRACE_PRELOAD_DIR", &libraries)],
        )
    };
    let prepare = |line: &str| {
        let (status, said) = run(line);
        assert_eq!(status, Some(0), "{line}: {said}");
    };
    // The traces that the examples name exist.
    if line.contains("--kernel") {
        crate::kernel_events::mount_tracefs();
    }
    if line.contains("--channel slow") {
        prepare("mkdir /sys/kernel/ltt/mine /sys/kernel/ltt/mine/slow");
    }
    if line.contains("mine") && !line.starts_with("usertrace start --flight") {
        prepare("usertrace start mine && ./server 3");
    }
    if examples::reads_traces(command, line) {
        prepare(&examples::prepare_traces(command));
    }
    let pid = std::cell::OnceCell::new();
    let mut line = line.to_owned();
    if command == "wait" {
        // A program fires while the command waits.
        prepare("usertrace trigger add mine 'shop:served then notify' >added");
        let added = std::fs::read_to_string(at("added")).expect("text");
        let number = added.split(' ').next().expect("a number");
        let typed = line.replace("--trigger 3", &format!("--trigger {number}"));
        line = format!("./server & {typed}");
    }
    if examples::is_of_services(command) {
        line = examples::with_services(&line);
    } else if examples::is_of_fallback(command, &line) {
        line = examples::beside_program(&line);
    } else if line.contains("4711") && command != "view" {
        let server = pid.get_or_init(|| server(&[("USERTRACE_CONTROL", "thread")], &[]));
        let number = server.0.id();
        wait::until("it can be asked", || {
            run(&format!("usertrace ctl {number} list")).0 == Some(0)
        });
        line = line.replace("4711", &number.to_string());
    }
    // Not into the system's directories.
    for (system, own) in [
        ("/usr/local/share/man/man1", "man1"),
        ("/etc/bash_completion.d/usertrace", "completion"),
    ] {
        line = line.replace(system, own);
    }
    let (status, said) = run(&line);
    let expected = examples::statuses(command, &line);
    assert!(
        status.is_some_and(|status| expected.contains(&status)),
        "{line}: {status:?}: {said}"
    );
    for wrong in ["error:", "panicked", "not found", "usertrace: cannot"] {
        assert!(!said.contains(wrong), "{line}: {said}");
    }
    println!("{line}: {status:?}");
}
