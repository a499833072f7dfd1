//! Traces of several hosts on one time line: `--sync`, what is said of clocks, and the page (E8).

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use usertrace_ctf::{Clock, StreamChannel, StreamOwner, TraceWriter, Version};
use usertrace_sys::Scope;
use usertrace_sys::uapi::LttClockSync;

use usertrace_testing::browser::Browser;
use usertrace_testing::processes::{START, clock, contexts, event, info, random};

const MS: i64 = 1_000_000;
const S: i64 = 1000 * MS;
/// The rule for messages in most tests.
const RULE: &str = "net:send=net:recv:id";

/// A host with a clock that is wrong.
#[derive(Clone, Copy)]
struct Host {
    name: &'static str,
    /// Ns that it is ahead at the start.
    ahead: i64,
    /// Ns that it gains in a second.
    gain: i64,
    freq: u64,
}

const fn host(name: &'static str, ahead: i64, gain: i64) -> Host {
    Host {
        name,
        ahead,
        gain,
        freq: 1_000_000_000,
    }
}

impl Host {
    /// Ns of its clock since its start, at a true time since the start.
    fn since_start(self, time: i64) -> i64 {
        time + time / 1000 * self.gain / 1_000_000
    }
}

/// What a host's program does: true times since the start, event ids and payloads.
type Events = Vec<(i64, u16, Vec<u8>)>;

/// Writes the trace of a host's program.
fn write(directory: &Path, host: Host, pid: u32, mut events: Events) {
    let sync = LttClockSync {
        cycles: 1_000_000_000,
        monotonic: 0,
        realtime: (START + host.ahead) as u64,
        freq: host.freq,
    };
    let path = directory.join(format!("{}-{pid}", host.name));
    let info = info("prog", pid, Some(host.name));
    let mut trace = TraceWriter::create(&path, info, Clock::new(&sync, &[])).unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    for line in [
        "1 net:send 6 u64 id;str to",
        "2 net:recv 6 u32 id",
        "3 net:lost 6 u64 id",
        "4 rpc:call 6 str id",
    ] {
        trace.declare(&event(line)).unwrap();
    }
    let stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0));
    let mut stream = stream.unwrap();
    events.sort();
    for (time, id, payload) in events {
        let ns = host.since_start(time) as u128;
        let cycles = 1_000_000_000 + (ns * u128::from(host.freq) / 1_000_000_000) as u64;
        stream.event(id, cycles, &[], &payload).unwrap();
    }
    stream.finish().unwrap();
}

fn sent(id: u64) -> Vec<u8> {
    [&id.to_ne_bytes()[..], b"x\0"].concat()
}

fn received(id: u64) -> Vec<u8> {
    (id as u32).to_ne_bytes().to_vec()
}

const HOSTS: [Host; 3] = [
    host("web", 0, 0),
    Host {
        freq: 2_400_000_000,
        ..host("db", 5 * S, 50_000)
    },
    host("cache", -3 * S, -20_000),
];

/// Writes two seconds of messages from `web` to the other two hosts, one each 2 ms.
fn write_messages(directory: &Path, is_answered: bool) {
    let mut random = random(1);
    let mut events: [Events; 3] = Default::default();
    for n in 0..1000u64 {
        let to = 1 + n as usize % 2;
        let mut delay = || 50_000 + (random() % 300_000) as i64;
        let begin = n as i64 * 2 * MS;
        let there = begin + delay();
        events[0].push((begin, 1, sent(2 * n)));
        events[to].push((there, 2, received(2 * n)));
        if is_answered {
            let back = there + 10_000;
            events[to].push((back, 1, sent(2 * n + 1)));
            events[0].push((back + delay(), 2, received(2 * n + 1)));
        }
    }
    for (host, events) in HOSTS.into_iter().zip(events) {
        write(directory, host, 40, events);
    }
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.args(arguments).current_dir(directory);
    command.env("TZ", "UTC").output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn is_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// A duration in ns that follows a text.
fn duration_after(line: &str, before: &str) -> f64 {
    let (_, rest) = line.split_once(before).unwrap_or_else(|| panic!("{line}"));
    let mut words = rest.split([' ', ',', ')']);
    let number: f64 = words.next().unwrap().parse().unwrap();
    let unit = match words.next().unwrap() {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        other => panic!("{other}: {line}"),
    };
    number * unit
}

/// The events, as objects.
fn exported(directory: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = run(directory, &[&["export", "--json", "."], arguments].concat());
    is_success(&output);
    let lines = text(&output.stdout).lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Number of messages whose receiving stands before their sending.
fn acausal(lines: &[&str]) -> usize {
    let mut sent = HashSet::new();
    let mut count = 0;
    for line in lines {
        let (_, id) = line.rsplit_once("id = ").unwrap();
        let id = id.split([',', ' ']).next().unwrap();
        if line.contains("net:send") {
            sent.insert(id);
        } else {
            count += usize::from(!sent.contains(id));
        }
    }
    count
}

/// Clocks are wrong by seconds, and drift. `--sync` makes the order causal, and the error that it
/// says is true.
///
/// Requirements: E8
#[test]
fn sync_makes_the_order_of_three_hosts_causal() {
    let directory = tempfile::tempdir().unwrap();
    write_messages(directory.path(), true);
    let without = run(directory.path(), &["view", "."]);
    is_success(&without);
    let lines: Vec<_> = text(&without.stdout).lines().collect();
    assert_eq!(lines.len(), 4000);
    assert!(acausal(&lines) > 900, "{}", acausal(&lines));
    let expected = "\
        usertrace: the traces of 3 hosts are merged by the hosts' own clocks; --sync corrects these by messages\n\
        usertrace: host \"cache\": 1 trace; clock error unknown: it depends on how NTP kept it\n\
        usertrace: host \"db\": 1 trace; clock error unknown: it depends on how NTP kept it\n\
        usertrace: host \"web\": 1 trace; clock error unknown: it depends on how NTP kept it\n";
    assert_eq!(text(&without.stderr), expected);

    let with = run(directory.path(), &["view", ".", "--sync", RULE]);
    is_success(&with);
    let lines: Vec<_> = text(&with.stdout).lines().collect();
    assert_eq!((lines.len(), acausal(&lines)), (4000, 0));
    let said: Vec<_> = text(&with.stderr).lines().collect();
    let [reference, cache, db] = said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(
        reference,
        "usertrace: host \"web\": its clock is the reference"
    );
    assert!(
        cache.contains("\"cache\": clock was 3.000 s behind, drift -20."),
        "{cache}"
    );
    assert!(
        db.contains("\"db\": clock was 5.000 s ahead, drift +"),
        "{db}"
    );
    assert!(
        db.ends_with("(500 messages from \"web\", 500 to it)"),
        "{db}"
    );
    // All times are those of `web`, which are true.
    let hosts: Vec<(Host, f64)> = vec![
        (HOSTS[0], 0.0),
        (HOSTS[1], duration_after(db, "now correct to ±")),
        (HOSTS[2], duration_after(cache, "now correct to ±")),
    ];
    for (host, error) in &hosts[1..] {
        assert!((50e3..400e3).contains(error), "{} {error}", host.name);
    }
    let wrong = exported(directory.path(), &[]);
    let right = exported(directory.path(), &["--sync", RULE]);
    let ns = |event: &Value| event["time"].as_str().unwrap().parse::<i64>().unwrap();
    for (host, error) in hosts {
        let times = |events: &[Value]| -> Vec<i64> {
            let of_host = events.iter().filter(|event| event["host"] == host.name);
            of_host.map(ns).collect()
        };
        let (wrong, right) = (times(&wrong), times(&right));
        assert_eq!(wrong.len(), right.len());
        for (wrong, right) in wrong.into_iter().zip(right) {
            let since = wrong - START - host.ahead;
            let truth = START + (since as f64 / (1.0 + host.gain as f64 / 1e9)) as i64;
            let off = (right - truth).abs() as f64;
            assert!(off <= error + 2.0, "{}: {off} > {error}", host.name);
        }
    }
    // Times that are asked for are corrected ones.
    let first = run(
        directory.path(),
        &["view", ".", "--sync", RULE, "--to", "22:13:20.000999"],
    );
    assert!((2..=5).contains(&text(&first.stdout).lines().count()));
    // All messages are used, whatever is selected.
    let one = run(
        directory.path(),
        &["view", ".", "--sync", RULE, "-e", "net:recv", "--pid", "40"],
    );
    assert_eq!(text(&one.stderr), text(&with.stderr));
}

/// Rules that do not fit the traces.
///
/// Requirements: C7
#[test]
fn wrong_rules_name_the_part() {
    let directory = tempfile::tempdir().unwrap();
    write_messages(directory.path(), true);
    let lost = (0, 3, 7u64.to_ne_bytes().to_vec());
    let events = vec![lost, (1000, 2, received(9))];
    let one = tempfile::tempdir().unwrap();
    write(one.path(), HOSTS[0], 41, events);
    let fails = |directory: &Path, rule: &str, status: i32, part: &str| {
        for command in [
            &["view", "."][..],
            &["export", "--json", "."],
            &["report", ".", "-o", "page.html"],
        ] {
            let output = run(directory, &[command, &["--sync", rule]].concat());
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{stderr}");
            assert!(stderr.contains(part), "{rule}: {stderr}");
            assert!(output.stdout.is_empty());
            assert!(!directory.join("page.html").exists());
        }
    };
    let several = directory.path();
    fails(several, "net:send", 2, "\"net\" is not an event");
    fails(several, "net:*=net:recv:id", 2, "\"net:*\" is a pattern");
    fails(
        several,
        "net:sent=net:recv:id",
        2,
        "no trace has the event \"net:sent\"",
    );
    fails(
        several,
        "net:send=net:recv:key",
        2,
        "the event \"net:send\" has no field \"key\"; it has id, to\n",
    );
    fails(
        several,
        "net:send=net:recv:id,to",
        2,
        "the event \"net:recv\" has no field \"to\"; it has id\n",
    );
    fails(
        several,
        "net:lost=net:recv:id",
        1,
        "no message of \"net:lost=net:recv:id\" was sent by one host and received by another: \
         0 events send, 2000 receive, 0 messages stay in one host, 0 events repeat a key\n",
    );
    fails(one.path(), RULE, 2, "all traces are of one host, \"web\"");
    let output = run(several, &["view", ".", "--follow", "--sync", RULE]);
    assert_eq!(output.status.code(), Some(2));
}

/// With messages in one direction, the order becomes causal, and the error is unknown.
#[test]
fn one_direction_is_approximate() {
    let directory = tempfile::tempdir().unwrap();
    write_messages(directory.path(), false);
    let output = run(directory.path(), &["view", ".", "--sync", RULE]);
    is_success(&output);
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert_eq!((lines.len(), acausal(&lines)), (2000, 0));
    // The clock of `db` is ahead, which contradicts no message: so it is not changed.
    let stderr = text(&output.stderr);
    assert!(stderr.contains("\"db\": clock was 0 ns ahead"), "{stderr}");
    assert!(
        stderr.contains("approximate: error unknown, as messages go one way only (500 messages from \"web\", 0 to it)"),
        "{stderr}"
    );
    assert!(stderr.contains("\"cache\": clock was 3.00"), "{stderr}");
}

/// A host without messages keeps its times. If messages of two hosts contradict each other, they
/// are not used.
#[test]
fn unusable_messages_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    write_messages(directory.path(), true);
    write(
        directory.path(),
        host("lonely", 0, 0),
        1,
        vec![(0, 3, 7u64.to_ne_bytes().to_vec())],
    );
    let output = run(directory.path(), &["view", ".", "--sync", RULE]);
    is_success(&output);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("host \"lonely\": not corrected, as no messages connect it\n"),
        "{stderr}"
    );

    // The same key for messages of other times.
    let directory = tempfile::tempdir().unwrap();
    let (mut web, mut db) = (Events::new(), Events::new());
    for n in 0..10 {
        let time = n as i64 * S;
        web.extend([(time, 1, sent(n)), (time + 1000, 2, received(n + 100))]);
        db.extend([
            (time + 500, 2, received(n)),
            (time + 600, 1, sent(100 + (n + 5) % 10)),
        ]);
    }
    write(directory.path(), HOSTS[0], 1, web);
    write(directory.path(), HOSTS[1], 1, db);
    let output = run(directory.path(), &["view", ".", "--sync", RULE]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("messages between \"db\" and \"web\" contradict each other by"),
        "{stderr}"
    );
}

/// Keys may be several fields and contexts, with numbers of other types, texts and lists.
#[test]
fn keys_are_fields_and_contexts() {
    let directory = tempfile::tempdir().unwrap();
    let contexts = contexts("@1 u32 vtid");
    let write = |name: &str, line: &str, payloads: [Vec<u8>; 4]| {
        let path = directory.path().join(name);
        let info = info("p", 1, Some(name));
        let mut trace = TraceWriter::create(&path, info, clock(1_000_000_000)).unwrap();
        trace.declare_contexts(Scope::Cpu, &contexts).unwrap();
        trace.declare(&event(line)).unwrap();
        let mut channel = StreamChannel::new("main", 1);
        channel.set_contexts();
        let mut stream = trace.stream(&channel, StreamOwner::Cpu(0)).unwrap();
        // The same values but for one of them do not match.
        for (n, payload) in (0..).zip(payloads) {
            let vtid = 7 + u32::from(n == 3);
            let time = 2_000_000 + n * 1000;
            stream
                .event(1, time, &vtid.to_ne_bytes(), &payload)
                .unwrap();
        }
        stream.finish().unwrap();
    };
    let sent = |n: i16, text: &[u8], list: [u8; 2]| [&n.to_ne_bytes()[..], text, &list].concat();
    let received =
        |n: i64, text: &[u8], list: [u8; 2]| [&n.to_ne_bytes()[..], text, &list].concat();
    write(
        "web",
        "1 net:send 6 s16 n;str s;u8[2] l",
        [
            sent(-5, b"a\0", [1, 2]),
            sent(-6, b"a\0", [1, 2]),
            sent(-5, b"b\0", [1, 2]),
            sent(-5, b"a\0", [1, 2]),
        ],
    );
    write(
        "db",
        "1 net:recv 6 s64 n;str s;u8[2] l",
        [
            received(-5, b"a\0", [1, 2]),
            received(6, b"a\0", [1, 2]),
            received(-5, b"b\0", [1, 3]),
            received(-5, b"c\0", [1, 2]),
        ],
    );
    let output = run(
        directory.path(),
        &["view", ".", "--sync", "net:send=net:recv:n,s,l,vtid"],
    );
    is_success(&output);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("(0 messages from \"db\", 1 to it)"),
        "{stderr}"
    );
}

/// One event for both sides of a call: the caller's are around the other host's.
#[test]
fn calls_are_recognized_by_their_length() {
    let directory = tempfile::tempdir().unwrap();
    let (mut web, mut db) = (Events::new(), Events::new());
    for n in 0..100i64 {
        let (time, id) = (n * 10 * MS, format!("request {n}\0").into_bytes());
        // Each host calls the other one.
        let [caller, other] = match n % 2 {
            0 => [&mut web, &mut db],
            _ => [&mut db, &mut web],
        };
        caller.extend([(time, 4, id.clone()), (time + 2 * MS, 4, id.clone())]);
        other.extend([(time + MS, 4, id.clone()), (time + MS + 1000, 4, id)]);
    }
    write(directory.path(), HOSTS[0], 1, web);
    write(directory.path(), HOSTS[1], 1, db);
    let output = run(directory.path(), &["view", ".", "--sync", "rpc:call:id"]);
    is_success(&output);
    let stderr = text(&output.stderr);
    // Of hosts with equally many messages, the first one is the reference.
    let said = "host \"db\": its clock is the reference\n\
                usertrace: host \"web\": clock was 5.000 s behind, drift ";
    assert!(stderr.contains(said), "{stderr}");
    assert!(stderr.contains("(100 messages from \"db\", 100 to it)"));
    let error = duration_after(stderr, "now correct to ±");
    assert!((0.9e6..1.2e6).contains(&error), "{stderr}");
    for lines in text(&output.stdout).lines().collect::<Vec<_>>().chunks(4) {
        let is_web: Vec<_> = lines.iter().map(|line| line.contains(" web:")).collect();
        assert!(is_web == [is_web[0], !is_web[0], !is_web[0], is_web[0]]);
    }
}

/// A million keys that match nothing are a hostile host's, and cost neither memory nor the
/// synchronization of the others.
#[test]
fn unmatched_messages_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    write_messages(directory.path(), true);
    let events = (0..1_000_000u64).map(|n| (n as i64, 1, sent(n + 1_000_000)));
    write(directory.path(), host("evil", 0, 0), 1, events.collect());
    // 100 MiB.
    let limited = "ulimit -d 102400; exec \"$0\" view . -e net:none --sync \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_usertrace"), RULE]);
    let output = command.current_dir(directory.path()).output().unwrap();
    is_success(&output);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("synchronized by 1 in 4 messages"),
        "{stderr}"
    );
    assert!(stderr.contains("\"evil\": not corrected"), "{stderr}");
    let db = stderr.lines().find(|line| line.contains("\"db\": clock"));
    let error = duration_after(db.unwrap(), "now correct to ±");
    assert!(error < 1e6, "{stderr}");
}

/// Changes the metadata of a trace.
fn edit(trace: &Path, edit: impl Fn(&str) -> String) {
    let path = trace.join("metadata");
    let text = fs::read_to_string(&path).unwrap();
    let edited = edit(&text);
    assert_ne!(edited, text);
    fs::write(path, edited).unwrap();
}

/// Clocks at the ends of what can be said, as in a trace that somebody made up.
#[test]
fn extreme_times_are_no_error() {
    for seconds in ["9223372030", "-9223372034", "4611686018", "-4611686018"] {
        let directory = tempfile::tempdir().unwrap();
        write_messages(directory.path(), true);
        edit(&directory.path().join("db-40"), |text| {
            let line = text.lines().find(|line| line.contains("offset_s"));
            text.replace(line.unwrap(), &format!("\toffset_s = {seconds};"))
        });
        let output = run(directory.path(), &["view", ".", "--sync", RULE]);
        is_success(&output);
        let lines: Vec<_> = text(&output.stdout).lines().collect();
        assert_eq!((lines.len(), acausal(&lines)), (4000, 0), "{seconds}");
        let output = run(
            directory.path(),
            &["report", ".", "-o", "page.html", "--sync", RULE],
        );
        is_success(&output);
    }
}

/// Traces of one clock are of one host, whatever the names are, as in containers. A clock may say
/// how exact it is.
#[test]
fn hosts_are_told_apart_by_their_clocks() {
    let directory = tempfile::tempdir().unwrap();
    write_messages(directory.path(), true);
    let set_clock = |host: &str, uid: &str| {
        edit(&directory.path().join(format!("{host}-40")), |text| {
            let added = format!("clock {{\n\tuuid = \"{uid}\";\n\tprecision = 3000000;\n");
            text.replace("clock {\n", &added)
        });
    };
    for host in ["web", "db", "cache"] {
        set_clock(host, "the same");
    }
    let output = run(directory.path(), &["view", "."]);
    is_success(&output);
    assert_eq!(text(&output.stderr), "");
    let output = run(directory.path(), &["view", ".", "--sync", RULE]);
    assert_eq!(output.status.code(), Some(2));
    edit(&directory.path().join("db-40"), |text| {
        text.replace("the same", "another")
    });
    edit(&directory.path().join("db-40"), |text| {
        text.replace("hostname = \"db\"", "hostname = \"cache\"")
    });
    let output = run(directory.path(), &["view", "."]);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains(
            "host \"cache (clock another)\": 1 trace; clock correct to ±1.250 ms, as its traces say\n"
        ),
        "{stderr}"
    );
    assert!(
        stderr.contains("host \"cache (clock the same)\": 2 traces; clock correct to ±3.000 ms"),
        "{stderr}"
    );
    let output = run(directory.path(), &["view", ".", "--sync", RULE]);
    is_success(&output);
}

/// Both versions of CTF have the id of the boot, by which containers are of one host.
#[test]
fn containers_of_one_boot_are_one_host() {
    for version in [Version::V1_8, Version::V2] {
        let directory = tempfile::tempdir().unwrap();
        let write = |hostname: &str, boot: &[u8; 16]| {
            let path = directory.path().join(hostname);
            let clock = clock(1_000_000_000).of_boot(Some(*boot));
            let mut trace = TraceWriter::create(&path, info("p", 1, Some(hostname)), clock);
            let trace = trace.as_mut().unwrap();
            trace.set_version(version);
            trace.declare_class(Scope::Cpu).unwrap();
        };
        write("pod-1", &[1; 16]);
        write("pod-2", &[1; 16]);
        let output = run(directory.path(), &["view", "."]);
        is_success(&output);
        assert_eq!(text(&output.stderr), "");
        write("pod-3", &[2; 16]);
        let output = run(directory.path(), &["view", "."]);
        is_success(&output);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("host \"pod-1\": 2 traces"), "{stderr}");
        assert!(stderr.contains("host \"pod-3\": 1 trace"), "{stderr}");
    }
}

/// Both versions of CTF have the error of the clock, and other readers take them.
#[test]
fn traces_say_the_error_of_their_clock() {
    for version in [Version::V1_8, Version::V2] {
        let directory = tempfile::tempdir().unwrap();
        let write = |hostname: &str, boot: u8, error: Option<u64>| {
            let path = directory.path().join(hostname);
            let clock = clock(999_999_938).of_boot(Some([boot; 16]));
            let clock = clock.with_error(error);
            let mut trace = TraceWriter::create(&path, info("p", 1, Some(hostname)), clock);
            let trace = trace.as_mut().unwrap();
            trace.set_version(version);
            trace.declare_class(Scope::Cpu).unwrap();
        };
        write("web", 1, Some(2_500_000));
        write("db", 2, Some(0));
        write("cache", 3, None);
        let output = run(directory.path(), &["view", "."]);
        is_success(&output);
        let stderr = text(&output.stderr);
        for line in [
            "host \"web\": 1 trace; clock correct to ±2.500 ms, as its traces say\n",
            "host \"db\": 1 trace; clock correct to ±0 ns, as its traces say\n",
            "host \"cache\": 1 trace; clock error unknown",
        ] {
            assert!(stderr.contains(line), "{stderr}");
        }
        let output = Command::new("babeltrace2").arg(directory.path()).output();
        let output = output.unwrap();
        // Debian 12's version does not read CTF 2.
        if version == Version::V1_8 {
            is_success(&output);
        }
    }
}

/// A process that cannot read the clock's id is of the host of the same name.
#[test]
fn traces_without_a_clock_id_belong_to_the_host_of_their_name() {
    let directory = tempfile::tempdir().unwrap();
    write_messages(directory.path(), true);
    for host in ["web", "db", "cache"] {
        edit(&directory.path().join(format!("{host}-40")), |text| {
            text.replace(
                "clock {\n",
                &format!("clock {{\n\tuuid = \"id of {host}\";\n"),
            )
        });
    }
    let number = 7u64.to_ne_bytes().to_vec();
    write(directory.path(), HOSTS[1], 41, vec![(500 * MS, 3, number)]);
    let output = run(directory.path(), &["view", "."]);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("traces of 3 hosts"), "{stderr}");
    assert!(stderr.contains("host \"db\": 2 traces"), "{stderr}");
    let events = exported(directory.path(), &["-e", "net:lost", "--sync", RULE]);
    let ns: i64 = events[0]["time"].as_str().unwrap().parse().unwrap();
    assert!((ns - START - 500 * MS).abs() < MS, "{ns}");
    // A dump may be of another boot.
    edit(&directory.path().join("db-41"), |text| {
        text.replace("env {\n", "env {\n\torigin = \"dump\";\n")
    });
    let output = run(directory.path(), &["view", "."]);
    let stderr = text(&output.stderr);
    for name in ["db (clock id of db)", "db (dump)"] {
        assert!(
            stderr.contains(&format!("host \"{name}\": 1 trace")),
            "{stderr}"
        );
    }
}

/// The page shows hosts as groups, and what is known of their clocks.
///
/// Requirements: F1
#[test]
fn page_groups_processes_by_host() {
    let directory = tempfile::tempdir().unwrap();
    write_messages(directory.path(), true);
    let output = run(
        directory.path(),
        &["report", ".", "-o", "page.html", "--sync", RULE],
    );
    is_success(&output);
    assert!(!text(&output.stderr).contains("reference"));
    let mut browser = Browser::start(1280, 900);
    browser.open(&directory.path().join("page.html"));
    browser.wait("document.documentElement.dataset.ready");
    let rows = "JSON.stringify(Timeline.rows.map(row => row.kind === 'group' ? hostName(row.host) : row.kind))";
    let group = |host: &str| format!(r#""{host}","process","lane","host","lane""#);
    let all = ["cache", "db", "web"].map(group).join(",");
    assert_eq!(browser.text(rows), format!("[{all}]"));
    let notes = browser.text("document.getElementById('notes').innerText");
    for part in [
        "host \"web\": its clock is the reference",
        "host \"db\": clock was 5.000 s ahead",
    ] {
        assert!(notes.contains(part), "{notes}");
    }
    // A click hides a host.
    let place = browser.value(
        "(() => { const row = Timeline.rows.find(row => row.kind === 'group');
            const { left, top } = Timeline.canvas.getBoundingClientRect(); return [left + 20, top + row.y + 10]; })()",
    );
    let (x, y) = (place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    browser.mouse(&["mouseMoved", "mousePressed", "mouseReleased"], x, y);
    browser.wait("Timeline.rows.length === 11");
    let hidden = format!("[\"cache\",{}]", ["db", "web"].map(group).join(","));
    assert_eq!(browser.text(rows), hidden);
    browser.wait(
        "document.getElementById('tooltip').textContent.startsWith('host cache\\n1 process\\n')",
    );
    assert_eq!(browser.complaints, Vec::<String>::new());
}
