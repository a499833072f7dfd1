//! `usertrace view`: its output and its exit status (E8, C7, F1).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use usertrace_ctf::{StreamChannel, StreamOwner, StreamWriter, TraceOrigin, TraceWriter};
use usertrace_sys::Scope;

use usertrace_testing::processes::{event, trace_in_ns};

/// Begins a trace of `t:number` and `t:text`, with a stream. Its clock counts ns, and is 0 at
/// 2023-11-14 22:13:20 UTC.
fn trace(directory: &Path, pid: u32) -> (TraceWriter, StreamWriter) {
    let of = TraceOrigin::Process {
        name: "prog".into(),
        pid,
        process: pid.into(),
    };
    let mut trace = trace_in_ns(&directory.join(format!("prog-{pid}")), "t", of);
    trace.declare_class(Scope::Cpu).unwrap();
    for line in ["1 t:number 6 u64 n", "2 t:text 6 str s"] {
        trace.declare(&event(line)).unwrap();
    }
    let stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0));
    (trace, stream.unwrap())
}

/// Writes `count` events, one each second, some of which are lost.
fn write(directory: &Path, pid: u32, count: u64) {
    let (_, mut stream) = trace(directory, pid);
    for n in 0..count {
        let time = n * 1_000_000_000 + u64::from(pid);
        match n % 3 {
            0 => stream.event(2, time, &[], b"it's\n\0").unwrap(),
            _ => stream.event(1, time, &[], &n.to_ne_bytes()).unwrap(),
        }
        if n == 5 {
            stream.discard(7);
        }
        if n == 8 {
            stream.overwrite(2).unwrap();
        }
    }
    stream.finish().unwrap();
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.arg("view").args(arguments).current_dir(directory);
    command.env("TZ", "UTC");
    command
}

fn view(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Zones include some with daylight saving time.
///
/// Requirements: E8
#[test]
fn output_equals_babeltrace2_in_each_time_zone() {
    let directory = tempfile::tempdir().unwrap();
    for pid in 1..4 {
        // Four hours, which pass midnight in some zones.
        write(directory.path(), pid, 4 * 3600);
    }
    for zone in [
        "UTC",
        "America/New_York",
        "Asia/Kolkata",
        "XYZ-1:30ABC,J318/23:30,J365",
    ] {
        let (expected, _) = usertrace_testing::babeltrace::printed(directory.path(), zone);
        let output = command(directory.path(), &["."]).env("TZ", zone).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout == expected, "{zone}");
        assert_eq!(
            expected.iter().filter(|&&b| b == b'\n').count(),
            3 * 4 * 3600
        );
    }
}

/// Losses are reported with their stream, number and time.
///
/// Requirements: E7
#[test]
fn losses_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 1, 12);
    let output = view(directory.path(), &["prog-1"]);
    let expected = "usertrace: 7 events were discarded between [22:13:25.000000001] and [22:13:26.000000001] in \
                    prog-1/main_0\n\
                    usertrace: 2 packets were discarded between [22:13:28.000000001] and [22:13:29.000000001] in \
                    prog-1/main_0\n";
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn events_are_selected() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 1, 12);
    write(directory.path(), 2, 12);
    let lines = |arguments: &[&str]| {
        let output = view(directory.path(), &[&["."], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).lines().count()
    };
    assert_eq!(lines(&[]), 24);
    assert_eq!(lines(&["-e", "text"]), 8);
    assert_eq!(lines(&["--event", "t:*,!t:text", "--pid", "2"]), 8);
    assert_eq!(lines(&["--pid", "1,2"]), 24);
    assert_eq!(lines(&["--pid", "3"]), 0);
    assert_eq!(lines(&["--from", "22:13:30"]), 4);
    assert_eq!(lines(&["--from", "22:13:30.000000002"]), 3);
    assert_eq!(lines(&["--to", "1700000001"]), 2);
    assert_eq!(
        lines(&[
            "--from",
            "2023-11-14 22:13:21",
            "--to",
            "22:13:22.000000001"
        ]),
        3
    );
    assert_eq!(lines(&["--from", "00:00:00"]), 24);
    assert_eq!(lines(&["--last", "1s"]), 3);
    assert_eq!(lines(&["--last", "1500ms"]), 4);
    assert_eq!(
        lines(&["--last", "1500ms", "--to", "22:13:30.000000001"]),
        1
    );
    assert_eq!(lines(&["--last", "1y"]), 24);
}

#[test]
fn closed_pipe_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 1, 50_000);
    let mut child = command(directory.path(), &["."])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with(
        "[22:13:20.000000001] (+?.?????????) host:prog:(1) t:text: { cpu_id = 0 }, { s = "
    ));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        !text(&output.stderr).contains("write"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn unreadable_traces_set_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write(path, 1, 12);
    write(path, 2, 12);
    fs::create_dir(path.join("empty")).unwrap();
    let fails = |arguments: &[&str], status: i32, expected: &str| {
        let output = view(path, arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        text(&output.stdout).lines().count()
    };
    assert_eq!(fails(&["none"], 1, "usertrace: none: No such file"), 0);
    assert_eq!(
        fails(&["empty"], 1, "usertrace: empty: there is no trace here"),
        0
    );
    assert_eq!(
        fails(&["prog-1", "empty"], 1, "empty: there is no trace here"),
        0
    );
    assert_eq!(
        fails(&["prog-1/main_0"], 1, "prog-1/main_0: Not a directory"),
        0
    );
    assert_eq!(fails(&[], 2, "required"), 0);
    assert_eq!(fails(&["-e", "a/b", "."], 2, "\"a/b\" is no pattern"), 0);
    assert_eq!(fails(&["--from", "noon", "."], 2, "HH:MM:SS"), 0);
    assert_eq!(fails(&["--last", "a while", "."], 2, "--last"), 0);
    // A trace that is named twice is read once.
    assert_eq!(fails(&["prog-1", ".", "prog-2/../prog-1"], 0, ""), 24);

    let stream = path.join("prog-1/main_0");
    let mut bytes = fs::read(&stream).unwrap();
    fs::write(&stream, &bytes[..bytes.len() - 1]).unwrap();
    // Events up to the cut are printed.
    let cut = format!(
        "usertrace: ./prog-1/main_0, at byte 408: a packet is cut short after {} bytes",
        bytes.len() - 1 - 408
    );
    assert_eq!(fails(&["."], 3, &cut), 23);
    bytes[0] += 1;
    fs::write(&stream, &bytes).unwrap();
    assert_eq!(
        fails(
            &["."],
            3,
            "usertrace: ./prog-1/main_0, at byte 0: there is no packet"
        ),
        12
    );
    fs::write(path.join("prog-2/metadata"), "/* CTF 1.8 */\ntrace { x").unwrap();
    fails(&["."], 3, "usertrace: ./prog-2/metadata, line 2: ");
}

/// `view --follow` prints each event of a recording before the next one is written. It ends after
/// the recording, with all events printed.
#[test]
fn growing_recording_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let (_trace, mut stream) = trace(directory.path(), process.id());
    let mut child = command(directory.path(), &["--follow", "."])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for n in 0..5u64 {
        stream.event(1, n, &[], &n.to_ne_bytes()).unwrap();
        stream.flush().unwrap();
        let line = lines.next().unwrap().unwrap();
        assert!(line.ends_with(&format!("{{ n = {n} }}")), "{line}");
    }
    assert_eq!(child.try_wait().unwrap(), None);
    // While a recorder runs, the recording goes on, even if all processes end.
    let notes = directory.path().join(".usertrace");
    fs::create_dir(&notes).unwrap();
    fs::write(
        notes.join("trace"),
        "name t\ngeneration 1\nboot b\ncreated true\n",
    )
    .unwrap();
    // `view` sees the notes before it sees the end of the process.
    process.kill().unwrap();
    process.wait().unwrap();
    // `view` ends when it finds no recorder three times in a row. It checks between two events.
    for n in 7..12u64 {
        stream.event(1, n, &[], &n.to_ne_bytes()).unwrap();
        stream.flush().unwrap();
        let line = lines.next().expect("it follows").unwrap();
        assert!(line.ends_with(&format!("{{ n = {n} }}")), "{line}");
    }
    assert_eq!(child.try_wait().unwrap(), None);
    stream.event(1, 12, &[], &[9; 8]).unwrap();
    stream.finish().unwrap();
    fs::remove_file(notes.join("trace")).unwrap();
    assert_eq!(lines.count(), 1);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A followed recording may be in chunks, which are renamed when they are finished. Each event is
/// printed once.
///
/// Requirements: E8
#[test]
fn chunks_that_are_finished_meanwhile_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (path, notes) = (directory.path(), directory.path().join(".usertrace"));
    fs::create_dir(&notes).unwrap();
    fs::write(
        notes.join("trace"),
        "name t\ngeneration 1\nboot b\ncreated true\n",
    )
    .unwrap();
    let chunk = |n: u64| {
        let finished = path.join(format!("20261122T150347Z-{n:06}"));
        (finished.with_extension("current"), finished)
    };
    let mut child = command(path, &["--follow", "."])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = |n: u64| {
        let line = lines.next().unwrap().unwrap();
        assert!(line.ends_with(&format!("{{ n = {n} }}")), "{line}");
    };
    for n in 1..4u64 {
        let (current, finished) = chunk(n);
        fs::create_dir(&current).unwrap();
        let (_trace, mut stream) = trace(&current, 1);
        stream
            .event(1, 10 * n, &[], &(10 * n).to_ne_bytes())
            .unwrap();
        stream.finish().unwrap();
        next(10 * n);
        // The last event comes under the new name.
        stream
            .event(1, 10 * n + 1, &[], &(10 * n + 1).to_ne_bytes())
            .unwrap();
        stream.finish().unwrap();
        fs::rename(current, finished).unwrap();
        next(10 * n + 1);
    }
    fs::remove_file(notes.join("trace")).unwrap();
    assert_eq!(lines.count(), 0);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(text(&view(path, &["."]).stdout).lines().count(), 6);
}
