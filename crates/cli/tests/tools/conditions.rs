//! `--where`: events chosen by their values, by each command that reads traces (E4, E8).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use usertrace_ctf::{StreamChannel, StreamOwner, TraceOrigin, TraceWriter};
use usertrace_sys::Scope;
use usertrace_testing::babeltrace;
use usertrace_testing::processes::{contexts, event, random, trace_in_ns};

/// The values of an event of `t:all`.
#[derive(Debug)]
struct Values {
    request: u64,
    size: u64,
    delta: i32,
    path: &'static str,
    status: u16,
    load: f64,
    half: f32,
    is_ok: bool,
    parts: [u16; 3],
    bytes: Vec<u8>,
    big: u16,
    tag: &'static str,
}

const EVENTS: u64 = 400;

/// Process ids that no process has: `view --follow` waits for those that run.
const PIDS: [u32; 2] = [4_194_401, 4_194_402];

const FIELDS: &str = "1 t:all 6 u64 size;s32 delta;str path;\
    u16{OK=200..299,FOUND=204,NOT_FOUND=404,ERROR=400..599} status;f64 load;f32 half;bool is_ok;\
    u16[3] parts;u8[] bytes;u16be big;c8[8] tag";

fn values() -> Vec<Values> {
    let mut random = random(7);
    let mut below = |limit: u64| random() % limit;
    let paths = [
        "/api/users",
        "/api/items?id=1",
        "/",
        "-",
        "a*b",
        "/static/é.css",
    ];
    (0..EVENTS)
        .map(|n| Values {
            request: below(4),
            size: match n % 5 {
                0 => u64::MAX - below(3),
                _ => below(5000),
            },
            delta: below(20) as i32 - 10,
            path: paths[below(6) as usize],
            status: [200, 204, 404, 500, 7][below(5) as usize],
            load: below(9) as f64 / 4.0,
            half: below(4) as f32 / 2.0,
            is_ok: below(2) == 1,
            parts: [below(3) as u16, below(300) as u16, below(65_536) as u16],
            bytes: (0..below(4)).map(|_| below(256) as u8).collect(),
            big: below(65_536) as u16,
            tag: ["none", "seven77", "x"][below(3) as usize],
        })
        .collect()
}

impl Values {
    fn contexts(&self, n: u64) -> Vec<u8> {
        let mut bytes = (n as u32 % 3).to_ne_bytes().to_vec();
        let mut name = format!("worker-{}", n % 2).into_bytes();
        name.resize(16, 0);
        bytes.extend(name);
        bytes.extend(self.request.to_ne_bytes());
        bytes
    }

    fn payload(&self) -> Vec<u8> {
        let mut bytes = self.size.to_ne_bytes().to_vec();
        bytes.extend(self.delta.to_ne_bytes());
        bytes.extend(self.path.bytes().chain([0]));
        bytes.extend(self.status.to_ne_bytes());
        bytes.extend(self.load.to_ne_bytes());
        bytes.extend(self.half.to_ne_bytes());
        bytes.push(self.is_ok.into());
        bytes.extend(self.parts.iter().flat_map(|part| part.to_ne_bytes()));
        bytes.extend((self.bytes.len() as u32).to_ne_bytes());
        bytes.extend(&self.bytes);
        bytes.extend(self.big.to_be_bytes());
        let mut tag = self.tag.as_bytes().to_vec();
        tag.resize(8, 0);
        bytes.extend(tag);
        bytes
    }
}

fn process(directory: &Path, pid: u32) -> TraceWriter {
    let of = TraceOrigin::Process {
        name: "prog".into(),
        pid,
        process: pid.into(),
    };
    trace_in_ns(
        &directory.join(format!("prog-{}", pid - 4_194_400)),
        "t",
        of,
    )
}

/// Writes a trace of `t:all` with contexts, on CPU 3.
fn write(directory: &Path, values: &[Values]) {
    let mut trace = process(directory, PIDS[0]);
    let contexts = contexts("@1 u32 vtid;c8[16] procname;u64 app.request");
    trace.declare_contexts(Scope::Cpu, &contexts).unwrap();
    trace.declare(&event(FIELDS)).unwrap();
    let mut channel = StreamChannel::new("main", 1);
    channel.set_contexts();
    let mut stream = trace.stream(&channel, StreamOwner::Cpu(3)).unwrap();
    for (n, values) in (0..).zip(values) {
        let contexts = values.contexts(n);
        stream
            .event(1, n * 1000, &contexts, &values.payload())
            .unwrap();
        if n == 100 {
            stream.discard(7);
        }
        if n % 100 == 50 {
            stream.flush().unwrap();
        }
    }
    stream.finish().unwrap();
}

/// Writes a trace of `t:number`, without contexts, in the ring of thread 77. One field's name
/// contains a dot.
fn write_thread(directory: &Path) {
    let mut trace = process(directory, PIDS[1]);
    trace.declare_class(Scope::Thread).unwrap();
    trace
        .declare(&event("1 t:number 6 u64 n;u64 http.status"))
        .unwrap();
    let owner = StreamOwner::Thread {
        ring: 0,
        tid: 77,
        begin: 1,
    };
    let mut stream = trace.stream(&StreamChannel::new("main", 1), owner).unwrap();
    for n in 0..10_u64 {
        let payload = [n.to_ne_bytes(), (n + 500).to_ne_bytes()].concat();
        stream.event(1, 1 + n, &[], &payload).unwrap();
    }
    stream.finish().unwrap();
}

fn usertrace(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command
        .args(arguments)
        .current_dir(directory)
        .env("TZ", "UTC");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The lines without the time since the line before.
fn lines(output: &[u8]) -> Vec<String> {
    let line = |line: &str| {
        let (time, rest) = line.split_once("] (").unwrap();
        format!("{time} {}", rest.split_once(") ").unwrap().1)
    };
    text(output).lines().map(line).collect()
}

type Predicate = fn(u64, &Values) -> bool;

/// Conditions, and what they must choose.
const CONDITIONS: &[(&str, Predicate)] = &[
    ("size > 18446744073709551613", |_, v| v.size > u64::MAX - 2),
    ("size >= 2500 && delta < 0", |_, v| {
        v.size >= 2500 && v.delta < 0
    }),
    ("delta == -3 || delta == 4", |_, v| {
        v.delta == -3 || v.delta == 4
    }),
    ("size & 1", |_, v| v.size & 1 == 1),
    ("size >> 3 & 7 == 5", |_, v| v.size >> 3 & 7 == 5),
    ("delta < size", |_, v| {
        i128::from(v.delta) < i128::from(v.size)
    }),
    ("path == \"/api/*\"", |_, v| v.path.starts_with("/api/")),
    ("path != \"*.css\" && path != \"-\"", |_, v| {
        !v.path.ends_with(".css") && v.path != "-"
    }),
    (r#"path == "a\*b""#, |_, v| v.path == "a*b"),
    ("path == \"*é*\"", |_, v| v.path.contains('é')),
    ("tag == 'seven77' || tag == \"none\"", |_, v| v.tag != "x"),
    ("status == \"OK\"", |_, v| (200..300).contains(&v.status)),
    ("status == \"*FOUND\"", |_, v| {
        [204, 404].contains(&v.status)
    }),
    ("status != \"ERROR\"", |_, v| {
        !(400..600).contains(&v.status)
    }),
    ("status >= 404", |_, v| v.status >= 404),
    ("load > 1.25", |_, v| v.load > 1.25),
    ("load == half", |_, v| v.load == f64::from(v.half)),
    ("!is_ok", |_, v| !v.is_ok),
    ("is_ok == 1 && parts[0] == 2", |_, v| {
        v.is_ok && v.parts[0] == 2
    }),
    ("parts[2] > 32767 && parts[1] < 0x80", |_, v| {
        v.parts[2] > 32_767 && v.parts[1] < 0x80
    }),
    ("bytes[1] > 127", |_, v| {
        v.bytes.get(1).is_some_and(|byte| *byte > 127)
    }),
    // An index outside of the array is unknown, and so is the opposite.
    ("!(bytes[1] > 127)", |_, v| {
        v.bytes.get(1).is_some_and(|byte| *byte <= 127)
    }),
    ("bytes[2] || size < 100", |_, v| {
        v.bytes.get(2).is_some_and(|byte| *byte != 0) || v.size < 100
    }),
    ("_bytes_length == 3", |_, v| v.bytes.len() == 3),
    ("big > 4660", |_, v| v.big > 4660),
    ("$ctx.vtid == 2", |n, _| n % 3 == 2),
    ("$ctx.procname == \"*-1\"", |n, _| n % 2 == 1),
    ("$app.request == 3", |_, v| v.request == 3),
    (
        "$ctx.cpu_id == 3 && $ctx.vpid == 4194401 && $ctx.hostname == \"h*\" && delta > 5",
        |_, v| v.delta > 5,
    ),
    ("$ctx.cpu_id != 3 || $ctx.vpid != 4194401", |_, _| false),
    ("delta == $app.request", |_, v| {
        i128::from(v.delta) == i128::from(v.request)
    }),
];

/// Of each condition, `view` prints the lines of babeltrace2 whose values fulfil it.
///
/// Requirements: E4, E8
#[test]
fn view_prints_the_events_that_fulfil_a_condition() {
    let directory = tempfile::tempdir().unwrap();
    let values = values();
    write(directory.path(), &values);
    let (printed, _) = babeltrace::printed(directory.path(), "UTC");
    let all = lines(&printed);
    assert_eq!(all.len(), values.len());
    for (condition, is_chosen) in CONDITIONS {
        let output = usertrace(directory.path(), &["view", "--where", condition, "."]);
        assert_eq!(output.status.code(), Some(0), "{condition}: {output:?}");
        let numbered = (0..).zip(&values).zip(&all);
        let expected: Vec<_> = numbered
            .filter(|((n, values), _)| is_chosen(*n, values))
            .map(|(_, line)| line.clone())
            .collect();
        assert_eq!(lines(&output.stdout), expected, "{condition}");
        // The command reports losses with any condition.
        let said = text(&output.stderr);
        assert!(
            said.contains("7 events were discarded"),
            "{condition}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{condition}: {said}");
    }
}

/// Contexts that events do not have are those of their stream or process.
///
/// Requirements: E4
#[test]
fn contexts_of_streams_and_processes_are_known() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &values());
    write_thread(directory.path());
    for (condition, count) in [
        ("$ctx.vtid == 77", 10),
        ("$ctx.tid == 77 && $ctx.procname == \"prog\"", 10),
        ("$ctx.vpid == 4194402 && n < 4", 4),
        ("$ctx.pid == 4194402 && $ctx.hostname == \"host\"", 10),
        ("http.status >= 505", 5),
        // Events without the field never match.
        ("n != 4", 9),
        ("n == 4 || $ctx.pid == 4194401", 401),
        ("http_status == 501", 1),
        ("http.size == 1 || n == 1", 1),
    ] {
        let output = usertrace(directory.path(), &["view", "--where", condition, "."]);
        assert_eq!(
            lines(&output.stdout).len(),
            count,
            "{condition}: {output:?}"
        );
    }
}

/// Requirements: E4
#[test]
fn export_report_and_top_choose_by_condition() {
    let directory = tempfile::tempdir().unwrap();
    let values = values();
    write(directory.path(), &values);
    let condition = "delta < 0 && $ctx.vtid == 1";
    let chosen = (0..)
        .zip(&values)
        .filter(|(n, values)| values.delta < 0 && n % 3 == 1);
    let count = chosen.count();
    let run = |arguments: &[&str]| {
        let output = usertrace(
            directory.path(),
            &[arguments, &["--where", condition]].concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output
    };
    let exported = run(&["export", "--json", "prog-1"]);
    let events = text(&exported.stdout)
        .lines()
        .filter(|line| line.contains("\"event\""));
    assert_eq!(events.count(), count);
    let lost = text(&exported.stdout)
        .lines()
        .filter(|line| line.contains("\"lost\""));
    assert_eq!(lost.count(), 1);
    let reported = run(&["report", "-o", "page.html", "prog-1"]);
    let said = text(&reported.stderr);
    assert!(
        said.contains(&format!(" {count} events of 1 process, 7 lost;")),
        "{said}"
    );
    let top = run(&["top", "--json", "-i", "0.05", "-n", "1", "./prog-1"]);
    let interval: serde_json::Value = serde_json::from_slice(&top.stdout).unwrap();
    assert_eq!(interval["rows"][0]["total"], count, "{interval}");
}

/// The error has the place, and nothing is read or written before.
#[test]
fn wrong_condition_is_refused_with_a_caret() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("kept"), "something").unwrap();
    for command in [
        &["view", "nowhere"][..],
        &["view", "--follow", "nowhere"],
        &["export", "--json", "-o", "kept", "nowhere"],
        &["report", "-o", "kept", "nowhere"],
        &["top", "-b", "nowhere"],
    ] {
        let arguments = [command, &["--where", "status >= ) && x"]].concat();
        let output = usertrace(directory.path(), &arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let expected = concat!(
            "expected a value, found \")\"\n",
            "  status >= ) && x\n",
            "            ^\n"
        );
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("nowhere"), "{said}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(
        fs::read(directory.path().join("kept")).unwrap(),
        b"something"
    );
}

#[test]
fn names_that_no_event_has_are_said_once() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &values());
    write_thread(directory.path());
    let condition = "sise > 1 || $ctx.vtit == 1 || $app.user == 1 || parts == 1 || size[0] || n";
    let expected = [
        "no event here has the field \"sise\" of --where",
        "no event here has the context \"$ctx.vtit\" of --where",
        "no event here has the context \"$app.user\" of --where",
        "no event here has the field \"parts\" of --where",
        "no event here has the field \"size[0]\" of --where",
    ];
    for command in [
        &["view", "."][..],
        &["view", "--follow", "."],
        &["export", "--json", "."],
        &["report", "-o", "-", "."],
        &["top", "-b", "-i", "0.05", "-n", "2", "."],
    ] {
        let output = usertrace(
            directory.path(),
            &[command, &["--where", condition]].concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = text(&output.stderr);
        let about_names: Vec<_> = said
            .lines()
            .filter(|line| line.contains("--where"))
            .collect();
        let expected = expected.map(|line| format!("usertrace: {line}"));
        assert_eq!(about_names, expected, "{command:?}");
    }
    // Of the events that are chosen by name, none has it.
    let arguments = ["view", "-e", "t:number", "--where", "size > 1", "."];
    let output = usertrace(directory.path(), &arguments);
    let said = text(&output.stderr);
    assert!(
        said.contains("no event here has the field \"size\" of --where"),
        "{said}"
    );
}
