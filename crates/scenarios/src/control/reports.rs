//! Reports of a program to its watchers, and of its end (B4, B5).

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use usertrace_control::{ProcessEnd, Report};

use super::{Backend, Program, Tests, Trace as _};

impl<B: Backend> Tests<B> {
    pub const REPORTS: &[(&str, fn())] = &[
        ("appearing_and_disappearing_events_are_reported", || {
            ["signal", "thread"]
                .iter()
                .for_each(|mode| events::<B>(mode));
        }),
        ("full_buffers_are_reported", full::<B>),
        ("slow_watcher_delays_no_program", slow_watcher::<B>),
        ("end_of_a_program_is_reported", ending::<B>),
        ("end_of_a_killed_program_is_reported", killed::<B>),
        ("command_reports_a_closed_channel", closed::<B>),
        ("command_controls_a_program", command::<B>),
    ];
}

/// Requirements: B4
fn events<B: Backend>(mode: &str) {
    let trace = B::Trace::new();
    let mut program = Program::<B>::traced(mode, &trace);
    let (watcher, other) = (program.client(), program.client());
    assert_eq!(watcher.ask("watch").unwrap(), trace.watch_answer());
    assert_eq!(program.request("come"), "0");
    let one = vec!["library:one".to_owned()];
    assert_eq!(watcher.report().unwrap(), Report::Appeared(one.clone()));
    assert_eq!(other.events().unwrap().len(), 2);
    assert_eq!(program.request("go"), "gone");
    assert_eq!(watcher.report().unwrap(), Report::Disappeared(one));
    assert_eq!(other.events().unwrap().len(), 1);
    program.kill();
}

/// Requirements: B4
fn full<B: Backend>() {
    let trace = B::Trace::new();
    let mut program = Program::<B>::traced("signal", &trace);
    let watcher = program.client();
    watcher.ask("watch").unwrap();
    assert_eq!(program.request("flood"), "true");
    let report = watcher.report().unwrap();
    let Report::Full {
        slot,
        channel: 1,
        lost: 1..,
    } = report
    else {
        panic!("{report:?}");
    };
    assert_eq!(slot, trace.slot());
    drop(watcher);
    program.kill();
}

/// Requirements: B4
fn slow_watcher<B: Backend>() {
    let mut program = Program::<B>::start(&[("USERTRACE_CONTROL", "thread")]);
    let watcher = program.client();
    watcher.ask("watch").unwrap();
    // More reports than the socket holds.
    assert_eq!(program.request("each 1500"), "declared");
    let mut reports = 0;
    while reports < 100 {
        match watcher.report().unwrap() {
            Report::Appeared(names) => reports += names.len(),
            other => panic!("{other:?}"),
        }
    }
    // There is room again: the program reports first how many reports were missed.
    assert_eq!(program.request("come"), "0");
    let one = vec!["library:one".to_owned()];
    let mut missed = 0;
    loop {
        match watcher.report().unwrap() {
            Report::Appeared(names) if names == one => break,
            Report::Appeared(names) => reports += names.len(),
            Report::Missed(count) => missed += count,
            other => panic!("{other:?}"),
        }
    }
    assert!(missed > 0);
    assert_eq!(reports as u64 + missed, 1500);
    program.kill();
}

/// Requirements: B5
fn ending<B: Backend>() {
    let trace = B::Trace::new();
    let program = Program::<B>::traced("signal", &trace);
    let watcher = program.client();
    watcher.ask("watch").unwrap();
    assert!(program.end().success());
    assert_eq!(watcher.report().unwrap(), Report::Ending);
    assert_eq!(watcher.report().unwrap(), Report::Closed);
    // Kernels before 6.15 do not tell how a process ended.
    let ending = watcher.ending();
    assert!(
        [ProcessEnd::Exited(0), ProcessEnd::Unknown].contains(&ending),
        "{ending:?}"
    );
}

fn usertrace<B: Backend>(arguments: &[&str]) -> Command {
    let mut command = B::usertrace();
    command.arg("ctl").args(arguments);
    command
}

fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))
}

/// The controller learns how the program ended and where its events are. None of them is lost.
///
/// Requirements: B5
fn killed<B: Backend>() {
    let trace = B::Trace::new();
    let mut program = Program::<B>::traced("signal", &trace);
    let pid = program.pid().to_string();
    let mut watch = usertrace::<B>(&[&pid, "watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let saved = value(&lines.next().unwrap().unwrap());
    assert_eq!(saved["saved"], trace.saved());
    for n in 0..10 {
        assert_eq!(program.request(&format!("event {n}")), "Recorded");
    }
    program.kill();
    let last = value(&lines.next().unwrap().unwrap());
    let ended = last["ended"].as_str().unwrap();
    let possible = [
        "killed by signal 9",
        "ended without notice: killed by a signal, or by _exit",
    ];
    assert!(possible.contains(&ended), "{ended}");
    assert_eq!(last["saved"], saved["saved"]);
    assert!(watch.wait().unwrap().success());
    assert_eq!(trace.events(), 10);
}

/// `watch` reports that the channel was closed, and ends although the program runs on.
///
/// Requirements: B4
fn closed<B: Backend>() {
    let mut program = Program::<B>::start(&[("USERTRACE_CONTROL", "thread")]);
    let pid = program.pid().to_string();
    for json in [&[][..], &["--json"]] {
        let mut watch = usertrace::<B>(&[&[&*pid, "watch"], json].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        assert_eq!(program.request("close"), "Ok(())");
        let last = lines.next().unwrap().unwrap();
        match json {
            [] => assert!(
                last.starts_with("the program closed its control channel"),
                "{last}"
            ),
            _ => assert_eq!(value(&last), json!({ "closed": true, "saved": "nowhere" })),
        }
        assert!(watch.wait().unwrap().success());
        assert_eq!(program.request("open thread"), "Ok(())");
    }
    program.kill();
}

fn success(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Requirements: B3
fn command<B: Backend>() {
    let trace = B::Trace::new();
    let mut program = Program::<B>::traced("thread", &trace);
    let pid = program.pid().to_string();
    let run = |arguments: &[&str]| {
        success(
            usertrace::<B>(&[&[pid.as_str()], arguments].concat())
                .output()
                .unwrap(),
        )
    };
    assert_eq!(run(&["list"]), "on  test:numbered 6 u64 n\n");
    assert_eq!(
        value(&run(&["list", "--json"])),
        json!([{ "event": "test:numbered 6 u64 n", "enabled": true }])
    );
    assert_eq!(run(&["connect", "test:*", "count"]), "1 events\n");
    assert_eq!(
        value(&run(&["activate", "test:*", "count", "--json"])),
        json!({ "events": 1 })
    );
    assert_eq!(run(&["probes"]), "count\ncount to test:*: active\n");
    assert_eq!(program.request("event 5"), "Recorded");
    assert_eq!(run(&["deactivate", "test:*", "count"]), "1 events\n");
    assert_eq!(run(&["disconnect", "test:*", "count"]), "1 events\n");
    assert_eq!(program.request("calls"), "1 5");
    assert_eq!(run(&["finalise"]), "");
    assert_eq!(program.request("event 6"), "Off");
    assert_eq!(run(&["initialise"]), "");
    assert_eq!(run(&["flush"]), "");
    let fails = |arguments: &[&str]| {
        let output = usertrace::<B>(&[&[pid.as_str()], arguments].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let error = fails(&["activate", "a:b", "none"]);
    assert!(error.contains("there is no such probe"), "{error}");
    let error = fails(&["load", "/nowhere/lib.so"]);
    assert!(error.contains("cannot load /nowhere/lib.so"), "{error}");
    let error = fails(&["unload", "/nowhere/lib.so"]);
    assert!(error.contains("cannot unload /nowhere/lib.so"), "{error}");
    assert!(error.contains("no library of that name"), "{error}");
    program.kill();
    let error = fails(&["list"]);
    assert!(
        error.contains(&format!("there is no process {pid}")),
        "{error}"
    );
}
