//! The control channel of traced and of untraced programs (B3).

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use usertrace_control::{Client, Report};
use usertrace_os::procfs;
use usertrace_scenarios::control::{Backend as _, command, error};
use usertrace_testing::wait;

use crate::Program;
use crate::fallback::Fallback;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("program_without_buffers_lists_its_events", untraced),
    ("ten_thousand_events_are_listed", ten_thousand_events),
    ("previous_signal_handler_is_called", chaining),
    ("no_channel_is_opened_unless_requested", nothing_when_off),
    ("invalid_setting_is_reported_once", bad_setting),
    ("closed_channel_can_be_opened_again", || {
        closed("signal", "29");
        closed("thread", "thread");
    }),
    ("channel_belongs_to_its_namespaces", namespaces),
    ("children_have_their_own_channels", || {
        ["signal", "thread"].iter().for_each(|mode| children(mode));
    }),
];

/// Requirements: B3
fn untraced() {
    let program = Program::start(&[("USERTRACE_CONTROL", "signal")]);
    let client = program.client();
    assert_eq!(client.events().unwrap().len(), 1);
    for request in ["flush", "initialise", "finalise"] {
        let error = error(client.ask(request));
        assert!(
            error.contains("no buffers: USERTRACE_BACKEND is off"),
            "{error}"
        );
    }
    program.kill();
}

/// Requirements: B3
fn ten_thousand_events() {
    for mode in ["signal", "thread"] {
        let mut program = Program::start(&[("USERTRACE_CONTROL", mode)]);
        assert_eq!(program.request("declare 10000"), "0");
        let events = program.client().events().unwrap();
        assert_eq!(events.len(), 10_001);
        let last = "many:event_9999 6 u64 first;str second";
        assert_eq!(events[10_000].description, last);
        program.kill();
    }
}

/// Requirements: B3
fn chaining() {
    let mut program = Program::start(&[]);
    assert_eq!(program.request("handle"), "Ok(())");
    assert_eq!(program.request("raise"), "1");
    let client = program.client();
    for _ in 0..10 {
        assert_eq!(client.events().unwrap().len(), 1);
    }
    // Signals of the channel did not call it.
    assert_eq!(program.request("raise"), "2");
    drop(client);
    assert_eq!(program.request("handle"), "Err(Started)");
    // The handler stays when the channel is closed, and calls the one before.
    assert_eq!(program.request("close"), "Ok(())");
    assert_eq!(program.request("raise"), "3");
    program.kill();
}

/// Requirements: B3
fn bad_setting() {
    let said = |value: &str| {
        let output = command::<Fallback>(&[("USERTRACE_CONTROL", value)])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for bad in ["on", "signal:9", "a\u{1b}b"] {
        let said = said(bad);
        let value = bad.escape_default();
        assert!(said.starts_with("usertrace: "), "{said}");
        assert!(said.contains("USERTRACE_CONTROL"), "{said}");
        let value = format!(" \"{value}\": ").replace("\\u{1b}", "\\x1b");
        assert!(said.contains(&value), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let long = said(&"x".repeat(1000));
    assert!(long.contains("USERTRACE_CONTROL"), "{long}");
    assert_eq!(long.lines().count(), 1, "{long}");
    for good in ["", "thread", "signal", "signal:50"] {
        assert_eq!(said(good), "", "{good}");
    }
}

/// The socket and the thread are gone, the clients learn of it, and the channel can be opened
/// again.
///
/// Requirements: B3
fn closed(mode: &str, again: &str) {
    let mut program = Program::start(&[("USERTRACE_CONTROL", mode)]);
    let (watcher, other) = (program.client(), program.client());
    watcher.ask("watch").unwrap();
    assert_eq!(other.events().unwrap().len(), 1);
    assert_eq!(program.request("close"), "Ok(())");
    assert_eq!(watcher.report().unwrap(), Report::Closing);
    assert_eq!(watcher.report().unwrap(), Report::Closed);
    let text = error(other.ask("list 0"));
    assert!(text.contains("the process closed the channel"), "{text}");
    let text = error(Client::connect(program.pid(), wait::LIMIT));
    assert!(text.contains("has no control channel"), "{text}");
    let mut surroundings = program.request("surroundings");
    // The thread ends a moment later.
    while !surroundings.starts_with("1 ") {
        surroundings = program.request("surroundings");
    }
    assert!(!surroundings.contains("socket"), "{surroundings}");
    assert_eq!(program.request("close"), "Err(None)");
    assert_eq!(program.request(&format!("open {again}")), "Ok(())");
    assert_eq!(program.client().events().unwrap().len(), 1);
    assert_eq!(program.request("close"), "Ok(())");
    let child: u32 = program.request("fork").parse().unwrap();
    assert!(Client::connect(child, wait::LIMIT).is_err());
    // SAFETY: the program's child, which waits.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
    program.kill();
}

/// Requirements: B3
fn nothing_when_off() {
    let mut off = Program::start(&[]);
    let error = error(Client::connect(off.pid(), wait::LIMIT));
    assert!(error.contains("USERTRACE_CONTROL"), "{error}");
    let nothing = off.request("surroundings");
    assert!(nothing.starts_with("1 "), "{nothing}");
    assert!(!nothing.contains("socket"), "{nothing}");
    let mut unknown = Program::start(&[("USERTRACE_CONTROL", "on")]);
    assert_eq!(unknown.request("surroundings"), nothing);
    // The test sees a socket and a thread where there are any.
    let mut signal = Program::start(&[("USERTRACE_CONTROL", "signal")]);
    assert!(signal.request("surroundings").contains("socket"));
    let mut thread = Program::start(&[("USERTRACE_CONTROL", "thread")]);
    assert!(thread.request("surroundings").starts_with("2 "));
    [off, unknown, signal, thread]
        .into_iter()
        .for_each(Program::kill);
}

/// Requirements: B3
fn children(mode: &str) {
    let mut program = Program::start(&[("USERTRACE_CONTROL", mode)]);
    let of_parent = program.client();
    of_parent.ask("connect test:numbered count").unwrap();
    let child: u32 = program.request("fork").parse().unwrap();
    // The program prints the child's id when the child may have no channel yet.
    let of_child = wait::until_some("the child has a channel", || {
        Client::connect(child, wait::LIMIT).ok()
    });
    assert_eq!(of_child.events().unwrap().len(), 1);
    // The child inherited the connection, and removes its own copy.
    assert_eq!(of_child.ask("disconnect test:numbered count").unwrap(), "1");
    assert_eq!(of_parent.ask("activate test:numbered count").unwrap(), "1");
    assert_eq!(of_parent.events().unwrap().len(), 1);
    drop(of_child);
    // SAFETY: the program's child, which waits.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
    assert_eq!(program.client().events().unwrap().len(), 1);
    program.kill();
}

/// A program in network and PID namespaces of its own, as in a container, is controlled from inside
/// these, by its id there. Users other than root need a user namespace for that, which not every
/// system allows.
fn namespaces() {
    // SAFETY: `geteuid` takes no pointers.
    let is_root = unsafe { libc::geteuid() } == 0;
    let program = command::<Fallback>(&[("USERTRACE_CONTROL", "thread")]);
    let mut unshare = Command::new("unshare");
    if !is_root {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(program.get_program());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    let mut unshare = unshare
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut output = BufReader::new(unshare.stdout.take().unwrap());
    output.read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let [pid] = procfs::children(unshare.id())[..] else {
        panic!("unshare has another number of children");
    };
    let pid = &pid.to_string();

    let outside = Fallback::usertrace()
        .args(["ctl", pid, "list"])
        .output()
        .unwrap();
    let said = String::from_utf8(outside.stderr).unwrap();
    assert!(!outside.status.success());
    assert!(said.contains("has no control channel"), "{said}");

    let mut nsenter = Command::new("nsenter");
    if !is_root {
        nsenter.args(["--user", "--preserve-credentials"]);
    }
    // The command is the host's, with a `/proc` of the program's PID namespace.
    let inside = nsenter
        .args(["--target", pid, "--net", "--pid", "unshare", "--mount-proc"])
        .arg(Fallback::usertrace().get_program())
        .args(["ctl", "1", "list"])
        .output()
        .unwrap();
    let listed = String::from_utf8(inside.stdout).unwrap();
    assert!(
        inside.status.success() && listed.contains("test:numbered"),
        "{listed}"
    );
    unshare.kill().unwrap();
    unshare.wait().unwrap();
}
