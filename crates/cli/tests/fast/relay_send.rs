//! `usertrace send`: what is sent, by whom, and where it is on the relay (E8, A10).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::relay::{SMALL, assert_exact, end, record, recorder, send, spool};
use super::run::{Run, VARIABLE, assert_success};
use super::trace;
use usertrace_testing::babeltrace;
use usertrace_testing::relayd::Relayd;
use usertrace_testing::wait::until;

/// `usertrace send`, with words before it.
fn send_by(words: &[&str], directory: &Path, options: &[&str], address: &str) -> Output {
    let usertrace = env!("CARGO_BIN_EXE_usertrace");
    let words = [words, &[usertrace, "send"], options].concat();
    let mut command = Command::new(words[0]);
    let command = command.args(&words[1..]).arg(directory).arg(address);
    command.output().unwrap()
}

/// A recording that has ended, of ten events.
fn recording() -> Run {
    let run = Run::new();
    run.success("ten", &[]);
    run.wait();
    run
}

pub(crate) fn directory_without_a_recording_is_refused() {
    let run = Run::new();
    let empty = run.path().join("empty");
    fs::create_dir_all(empty.join("directory")).unwrap();
    fs::write(run.path().join("file"), "x").unwrap();
    for (name, why) in [
        ("empty", "has no trace to send"),
        ("file", "Not a directory"),
        ("absent", "No such file or directory"),
    ] {
        let output = send_by(&[], &run.path().join(name), &[], "tcp://127.0.0.1:1");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(fs::read_dir(empty).unwrap().count(), 1);
    // A user who may read the recording, but not write the note of where it is on the relay.
    // SAFETY: `geteuid` takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let run = recording();
    let other = ["setpriv", "--reuid", "1", "--clear-groups"];
    let output = send_by(&other, run.path(), &[], "tcp://127.0.0.1:1");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Permission denied"), "{said}");
}

/// Whether a program has begun a trace in the spool, or in a chunk there.
fn has_trace(run: &Run) -> bool {
    let directories = trace::directories(&spool(run));
    let below = directories.iter().flat_map(|of| trace::directories(of));
    let mut all = below.chain(directories.clone());
    all.any(|directory| directory.join("metadata").exists())
}

pub(crate) fn recording_has_one_sender() {
    let mut relay = Relayd::stopped();
    let run = Run::new();
    let child = record(&run, &relay.address(), SMALL, "steps");
    until("there is a trace", || has_trace(&run));
    let output = send(&run, &relay.address());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("another process sends it"), "{said}");
    relay.restart();
    let (counts, output) = end(child);
    assert_success(output.status, &output.stderr);
    assert_exact(&relay.output(), &counts);
}

pub(crate) fn recording_is_sent_while_it_is_written() {
    for options in [&[][..], &["--rotate-size", "128k"]] {
        let relay = Relayd::start();
        let run = Run::new();
        let mut command = recorder(&spool(&run), options);
        let command = command.arg("--").arg(std::env::current_exe().unwrap());
        let child = command.env(VARIABLE, "steps").spawn().unwrap();
        until("there is a trace", || has_trace(&run));
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        let command = command.arg("send").arg(spool(&run)).arg(relay.address());
        let mut sender = command.stderr(Stdio::piped()).spawn().unwrap();
        until("the relay has something", || {
            let ended = sender.try_wait().unwrap();
            ended.is_some() || trace::directories(&relay.output()).len() == 1
        });
        let (counts, output) = end(child);
        assert_success(output.status, &output.stderr);
        let sent = sender.wait_with_output().unwrap();
        assert_success(sent.status, &sent.stderr);
        assert_exact(&relay.output(), &counts);
    }
}

pub(crate) fn odd_names_stay_below_the_relays_directory() {
    let long = "x".repeat(300);
    let names = [
        "", ".", "..", "/", "../../up", "a b", "-x", "\u{fc}\n", &long,
    ];
    let hosts = [".", "..", "a b", "-x", "../up", "\u{fc}"];
    let relay = Relayd::start();
    let mut sent = 0;
    let mut check = |words: &[&str], options: &[&str]| {
        let run = recording();
        let output = send_by(words, run.path(), options, &relay.address());
        assert_success(output.status, &output.stderr);
        sent += 10;
        let read = babeltrace::lines(&relay.output()).lines.len();
        assert_eq!(read, sent, "{words:?} {options:?}");
    };
    for name in names {
        check(&[], &[&format!("--name={name}")]);
    }
    // SAFETY: `geteuid` takes no pointers.
    if unsafe { libc::geteuid() } == 0 {
        for host in hosts {
            let set = "printf %s \"$0\" >/proc/sys/kernel/hostname; exec \"$@\"";
            check(&["unshare", "--uts", "sh", "-c", set, host], &[]);
        }
    }
}

/// The owner of a recording must not make another user send their files.
pub(crate) fn links_in_a_recording_are_not_sent() {
    let relay = Relayd::start();
    let (run, secret) = (recording(), Run::new());
    let traces = trace::directories(run.path());
    let hidden = secret.path().join("metadata");
    fs::write(&hidden, "secret").unwrap();
    symlink(secret.path(), run.path().join("linked-1-1")).unwrap();
    symlink(secret.path(), run.path().join("20261122T150347Z-000001")).unwrap();
    symlink(&hidden, traces[0].join("linked")).unwrap();
    let sent = send_by(&[], run.path(), &[], &relay.address());
    assert_success(sent.status, &sent.stderr);
    assert_eq!(babeltrace::lines(&relay.output()).lines.len(), 10);
    let mut grep = Command::new("grep");
    let found = grep.args(["-r", "secret"]).arg(relay.output()).output();
    assert!(found.unwrap().stdout.is_empty());
}
