//! `usertrace spans`: numbers by name, root spans, and a waterfall (B1, E8, C7).

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use usertrace_testing::spans::SpanTrace;

fn spans(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.arg("spans").args(arguments).arg(".");
    command.current_dir(directory).env("TZ", "UTC");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The standard output of a command without complaints.
fn shown(directory: &Path, arguments: &[&str]) -> String {
    let output = spans(directory, arguments);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), ""),
        "{arguments:?}"
    );
    text(&output.stdout).to_owned()
}

/// The message of a command that fails with this status.
fn complaint(directory: &Path, arguments: &[&str], status: i32) -> String {
    let output = spans(directory, arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr).to_owned()
}

/// Four requests of 1, 2, 3 and 4 ms, each with a query in it for half of the time; the last one
/// moves to another thread.
fn write(directory: &Path) {
    let mut trace = SpanTrace::create(directory, 7);
    for n in 1..5u64 {
        let (begin, length) = (10_000_000 * n, 1_000_000 * n);
        let at = |part: u64, thread| (begin + length * part / 8, thread);
        trace.request(at(0, 51), [1, 0], &format!("/{n}"));
        trace.enter(at(0, 51), true, 1);
        trace.query(at(2, 51), [2, 1], "items");
        trace.enter(at(2, 51), false, 2);
        trace.message(at(3, 51), 2, "a \"row\"\u{1b}[2J");
        trace.exit(at(4, 51), false, 2);
        trace.exit(at(4, 51), true, 1);
        trace.close(at(6, 52), false, 2);
        trace.status(at(6, 52), 1, 200 + n as u16);
        if n == 4 {
            trace.enter(at(7, 52), true, 1);
            trace.exit(at(8, 52), true, 1);
        }
        trace.close(at(8, 52), true, 1);
    }
    trace.finish();
}

/// The id in the first root's line.
fn first_id(directory: &Path, arguments: &[&str]) -> String {
    let roots = shown(directory, arguments);
    let line = roots.lines().nth(1).unwrap();
    let is_id = |word: &&str| word.len() == 16 && word.bytes().all(|b| b.is_ascii_hexdigit());
    line.split(' ').find(is_id).unwrap().to_owned()
}

/// Each name has its numbers; `--where` chooses spans, and `--top` names.
///
/// Requirements: B1, E8
#[test]
fn names_have_numbers() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    assert_eq!(
        shown(directory.path(), &[]),
        "  COUNT OPEN    TOTAL     BUSY      P50      P99      MAX CHILDREN NAME
      4    0 10.00 ms 5.500 ms 2.032 ms 4.000 ms 4.000 ms    50.0% shop:request shop:query 50.0%
      4    0 5.000 ms 2.500 ms 1.016 ms 2.000 ms 2.000 ms     0.0% shop:query\n"
    );
    let chosen = shown(
        directory.path(),
        &["--where", "status >= 203", "--top", "1"],
    );
    let lines: Vec<_> = chosen.lines().collect();
    assert_eq!(lines.len(), 2, "{chosen}");
    assert!(lines[1].starts_with("      2    0 7.000 ms"), "{chosen}");
    let cut = shown(directory.path(), &["--top", "1"]);
    assert!(
        cut.ends_with("and 1 further name; --top lists more\n"),
        "{cut}"
    );
    assert_eq!(shown(directory.path(), &["-e", "libc:*"]), "no spans\n");
    let json = shown(directory.path(), &["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let request = &json["names"][0];
    assert_eq!(request["name"], "shop:request");
    for (key, value) in [
        ("count", 4),
        ("open", 0),
        ("total_ns", 10_000_000),
        ("busy_ns", 5_500_000),
        ("in_children_ns", 5_000_000),
        ("min_ns", 1_000_000),
        ("max_ns", 4_000_000),
    ] {
        assert_eq!(request[key], value, "{key}");
    }
    assert_eq!(request["children"][0]["total_ns"], 5_000_000);
}

/// The slowest roots come first, and one is shown with its children, threads and events.
///
/// Requirements: B1, E8
#[test]
fn slowest_request_is_a_waterfall() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    let roots = shown(directory.path(), &["--slowest", "2"]);
    let lines: Vec<_> = roots.lines().collect();
    assert_eq!(lines.len(), 3, "{roots}");
    for (line, path) in [
        (1, "path = \"/4\", status = 204"),
        (2, "path = \"/3\", status = 203"),
    ] {
        assert!(lines[line].ends_with(path), "{roots}");
    }
    let id = first_id(directory.path(), &["--slowest", "1"]);
    let expected = format!(
        "shop:request {id}
  4.000 ms from 22:13:20.040000000: busy 2.500 ms, idle 1.500 ms
  process shop (7) on web1
  path = \"/4\", status = 204
  threads: a worker-51 51, b worker-52 52

SPAN      DURATION       BUSY  |4.000 ms                                       |
request   4.000 ms   2.500 ms  |aaaaaaaaaaaaaaaaaaaaaaa..................bbbbbb|
  query   2.000 ms   1.000 ms  |           aaaaaaaaaaaa............            |
    table = \"items\"
    1.500 ms a shop:main.rs-12: message = \"a \\\"row\\\"\\e[2J\"
"
    );
    for arguments in [
        ["--show", &id],
        ["--show", &id[..9]],
        ["--find", "status=204"],
    ] {
        assert_eq!(shown(directory.path(), &arguments), expected);
    }
    // A child alone.
    let json = shown(directory.path(), &["--find", "path=/4", "--json"]);
    let tree: Value = serde_json::from_str(&json).unwrap();
    let query = &tree["spans"][1];
    assert_eq!(
        (&query["depth"], &query["parent"]),
        (&1.into(), &id[..].into())
    );
    assert_eq!(
        query["events"][0]["fields"]["message"],
        "a \"row\"\u{1b}[2J"
    );
    assert_eq!(
        tree["spans"][0]["fields"],
        serde_json::json!({"path": "/4", "status": 204})
    );
    assert_eq!(tree["spans"][0]["threads"][1]["name"], "worker-52");
    let child = shown(directory.path(), &["--show", query["id"].as_str().unwrap()]);
    assert!(
        child.starts_with("shop:query ") && child.contains("table = \"items\""),
        "{child}"
    );
    assert!(
        child.contains("|aaaaaaaaaaaaaaaaaaaaaaaa.........................|"),
        "{child}"
    );
    let json = shown(directory.path(), &["--slowest", "1", "--json"]);
    let roots: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&roots["roots"][0]["id"], &roots["further"]),
        (&id[..].into(), &3.into())
    );
}

/// What cannot be found, or is wrong, or is missing, is said.
///
/// Requirements: C7, E8
#[test]
fn what_is_missing_is_said() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    let output = spans(directory.path(), &["--find", "table=items"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("path = \"/4\""));
    assert_eq!(
        text(&output.stderr),
        "usertrace: 3 other root spans have that, too; add --slowest 4 to list all\n"
    );
    let listed = shown(
        directory.path(),
        &["--find", "table=items", "--slowest", "4"],
    );
    assert_eq!(listed.lines().count(), 5, "{listed}");
    for (arguments, status, message) in [
        (
            &["--find", "path=/9"][..],
            1,
            "no root span has that field with that value",
        ),
        (
            &["--show", "0123456789abcdef"],
            1,
            "no span has the id 0123456789abcdef",
        ),
        (
            &["--show", "xyz"],
            2,
            "an id has 1 to 16 hexadecimal digits",
        ),
        (
            &["--find", "path"],
            2,
            "a field and its value are written FIELD=VALUE",
        ),
        (&["--slowest", "0"], 2, "0 is not in 1..=100000"),
        (&["--where", "status >"], 2, "status >"),
        (&["--root", "a[b"], 2, "a[b"),
    ] {
        let said = complaint(directory.path(), arguments, status);
        assert!(said.contains(message), "{arguments:?}: {said}");
    }
    let output = spans(directory.path(), &["--where", "stat == 1"]);
    assert!(
        text(&output.stderr).contains("the field \"stat\""),
        "{output:?}"
    );

    let mut trace = SpanTrace::create(directory.path(), 8);
    trace.lose(3);
    trace.query((0, 61), [5, 4], "lost");
    trace.close((10, 61), false, 5);
    trace.close((20, 61), true, 4);
    trace.request((30, 61), [6, 0], "/hangs");
    trace.other((10_000_000_000, 61));
    trace.finish();
    let output = spans(directory.path(), &["--slowest", "9", "--pid", "8"]);
    let said = text(&output.stderr);
    assert!(said.contains("3 events and 0 packets were lost"), "{said}");
    assert!(said.contains("1 spans ended that had not begun"), "{said}");
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert!(
        lines[1].contains("10.000 s") && lines[1].ends_with("path = \"/hangs\" [open at the end]"),
        "{lines:?}"
    );
    assert!(
        lines[2].ends_with("table = \"lost\" [parent unknown]"),
        "{lines:?}"
    );
}

/// Memory and locks are lines of the span that their thread is in, with the duration and the fields
/// of both events. Text has a limited number of them, JSON all.
///
/// Requirements: B1, E8
#[test]
fn waterfall_has_what_begins_and_ends_in_spans() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = SpanTrace::create(directory.path(), 7);
    trace.request((1000, 51), [1, 0], "/a");
    trace.enter((1000, 51), true, 1);
    trace.malloc((2000, 51), 24, 0x20);
    trace.lock(51, 0x99, [3000, 5000, 8000]);
    trace.free((9000, 52), 0x20);
    for n in 0..150 {
        trace.other((10_000 + n, 51));
    }
    trace.exit((20_000, 51), true, 1);
    trace.close((20_000, 51), true, 1);
    trace.finish();
    let shown_text = shown(directory.path(), &["--find", "result=0"]);
    let lines: Vec<&str> = shown_text
        .lines()
        .skip_while(|line| !line.contains("libc:malloc"))
        .collect();
    let expected = [
        "  1.000 µs a libc:malloc 7.000 µs: size = 24, ptr = 0x20",
        "  2.000 µs a pthread:mutex_lock 2.000 µs: mutex = 0x99, result = 0",
        "  4.000 µs a pthread:mutex held 3.000 µs: mutex = 0x99, result = 0",
        "  9.000 µs a libc:read: fd = 3",
    ];
    assert_eq!(lines[..4], expected, "{shown_text}");
    assert_eq!(lines.len(), 101, "{shown_text}");
    assert_eq!(lines[100], "  and 53 further events (--json has all)");
    let json = shown(directory.path(), &["--find", "fd=3", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let events = json["spans"][0]["events"].as_array().unwrap();
    assert_eq!(events.len(), 153);
    let first = serde_json::json!({
        "event": "libc:malloc", "time": events[0]["time"], "from_ns": 1000, "duration_ns": 7000,
        "ended_by": "libc:free", "thread": 51, "fields": {"size": "24", "ptr": "0x20"},
    });
    assert_eq!(events[0], first);
    assert_eq!(events[3].get("ended_by"), None);
}
