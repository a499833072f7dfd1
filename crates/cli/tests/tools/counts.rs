//! Channels that count: recorders, traces, and `usertrace stat` (A10, A11, C5, E7, F1, F4).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use std::time::Instant;

use serde_json::{Value, json};
use usertrace_cli::top::ProcessCounter;
use usertrace_consumer::{CONTROL, ConsumerFile, MAIN, Session, SessionSummary, snapshot_process};
use usertrace_ctf::Version;
use usertrace_ctf::recording::RecordingNote;
use usertrace_reader::{Counter, Counters, Item, Reader, Selection};
use usertrace_ring::Positions;
use usertrace_sys::uapi::{LttClockSync, LttFileInfo, LttInfoChannel, LttRingPositions};

use usertrace_testing::browser::Browser;
use usertrace_testing::count_table::{CountTableWriter, Key};
use usertrace_testing::{RingWriter, babeltrace, open_metrics, tools};

const SUBBUF: u32 = 4096;
const COUNT: u32 = 4;
const LEN: u64 = (SUBBUF * COUNT) as u64;
const START: u64 = 1_000_000;
/// Channels that count, in the order of their indices.
const SIZES: &str = "sizes";
const NAMES: &str = "names";

/// A process that counts, as the kernel sees it: values of two events on two CPUs in the channel
/// `sizes`, by a number, and events by a text in `names`.
struct Process {
    pid: u32,
    control: RingWriter,
    main: RingWriter,
    sizes: [CountTableWriter; 2],
    names: [CountTableWriter; 2],
    /// Positions that were consumed, of each table.
    consumed: BTreeMap<&'static str, [u64; 2]>,
    lost: u64,
    dead: bool,
    now: u64,
}

impl Process {
    fn new(pid: u32) -> Rc<RefCell<Self>> {
        let table = |has_values| CountTableWriter::new(LEN as usize, has_values);
        let mut control = RingWriter::new(SUBBUF.into(), COUNT.into(), 0);
        for line in [
            "1 libc:malloc 14 u64 size;s32 from",
            "#2 size from",
            "2 libc:calloc 14 u64 size",
            "3 shop:served 6 str path",
            "#3 - path",
        ] {
            assert!(control.meta(START, line));
        }
        Rc::new(RefCell::new(Self {
            pid,
            control,
            main: RingWriter::new(SUBBUF.into(), COUNT.into(), 0),
            sizes: [table(true), table(true)],
            names: [table(false), table(false)],
            consumed: BTreeMap::new(),
            lost: 0,
            dead: false,
            now: START,
        }))
    }

    fn size(&mut self, cpu: usize, id: u32, from: Key, size: i64) {
        self.sizes[cpu].count(id, &from, Some(size));
    }

    fn name(&mut self, cpu: usize, path: &str) {
        self.names[cpu].count(3, &Key::Text(path.into()), None);
    }

    fn work(&mut self) {
        for n in 0..100 {
            self.size(n as usize % 2, 1, Key::Number((-1i64).cast_unsigned()), n);
        }
        self.size(1, 2, Key::None, 1 << 40);
        for _ in 0..3 {
            self.name(0, "/api \"x\"\n\\");
            self.name(1, "/api \"x\"\n\\");
        }
        self.name(1, "/ü");
    }

    fn tables(&self, channel: &str) -> Option<&[CountTableWriter; 2]> {
        match channel {
            SIZES => Some(&self.sizes),
            NAMES => Some(&self.names),
            _ => None,
        }
    }
}

/// What [`Process::work`] counts.
fn worked() -> Vec<Counter> {
    let mut histogram = vec![1, 1, 2, 4, 8, 16, 32, 36];
    let malloc = Counter {
        event: "libc:malloc".into(),
        channel: SIZES.into(),
        key_name: "from".into(),
        key: "-1".into(),
        value_name: "size".into(),
        count: 100,
        values: 100,
        sum: 4950,
        min: 0,
        max: 99,
        histogram: histogram.clone(),
    };
    histogram = vec![0; 42];
    histogram[41] = 1;
    let calloc = Counter {
        event: "libc:calloc".into(),
        key: String::new(),
        count: 1,
        values: 1,
        sum: 1 << 40,
        min: 1 << 40,
        max: 1 << 40,
        histogram,
        ..malloc.clone()
    };
    let served = |path: &str, count| Counter {
        event: "shop:served".into(),
        channel: NAMES.into(),
        key_name: "path".into(),
        key: path.into(),
        count,
        ..Counter::default()
    };
    vec![malloc, served("/api \"x\"\n\\", 6), served("/ü", 1), calloc]
}

/// A consumer file.
struct File {
    process: Rc<RefCell<Process>>,
    channel: &'static str,
}

impl ConsumerFile for File {
    fn info(&self) -> io::Result<LttFileInfo> {
        let mut process = self.process.borrow_mut();
        process.now += 10;
        let sync = LttClockSync {
            cycles: START,
            monotonic: 0,
            realtime: 1_700_000_000_000_000_000,
            freq: 1_000_000_000,
        };
        let is_table = process.tables(self.channel).is_some();
        let mut info = LttFileInfo {
            pid: process.pid,
            process: process.pid.into(),
            channel_index: match self.channel {
                CONTROL => 0,
                MAIN => 1,
                SIZES => 2,
                _ => 3,
            },
            start: sync,
            now: LttClockSync {
                cycles: process.now,
                ..sync
            },
            channel: LttInfoChannel {
                subbuf_size: SUBBUF,
                subbuf_count: COUNT,
                nr_rings: if is_table { 2 } else { 1 },
                control_stride: 128,
                mode: if is_table { 3 } else { 0 },
                protocol: if is_table { 2 } else { 0 },
                cell_size: match self.channel {
                    SIZES => 640,
                    NAMES => 64,
                    _ => 0,
                },
                ..LttInfoChannel::default()
            },
            ..LttFileInfo::default()
        };
        info.comm[..4].copy_from_slice(b"prog");
        info.trace[..2].copy_from_slice(b"tr");
        Ok(info)
    }

    fn positions(&self, rings: &mut [LttRingPositions]) -> io::Result<u32> {
        let process = self.process.borrow();
        for (n, positions) in rings.iter_mut().enumerate() {
            let ring = match self.channel {
                CONTROL => Some(&process.control),
                MAIN => Some(&process.main),
                _ => None,
            };
            *positions = match (ring, process.tables(self.channel)) {
                (Some(ring), _) => LttRingPositions {
                    head: ring.head,
                    consumed: ring.consumed,
                    ..LttRingPositions::default()
                },
                (_, tables) => LttRingPositions {
                    head: match tables.is_some_and(|tables| tables[n].bytes.iter().any(|&b| b != 0))
                    {
                        true => LEN,
                        false => 0,
                    },
                    lost: if (self.channel, n) == (NAMES, 1) {
                        process.lost
                    } else {
                        0
                    },
                    claimed: 0,
                    consumed: process.consumed.get(self.channel).map_or(0, |all| all[n]),
                },
            };
        }
        Ok(u32::from(process.dead))
    }

    fn consume(&self, ring: u32, position: u64) -> io::Result<()> {
        let mut process = self.process.borrow_mut();
        if process.tables(self.channel).is_none() {
            return Ok(());
        }
        // A recorder announces itself so.
        if position > 0 {
            assert!(
                process.dead,
                "the counters of a running process are not final"
            );
            assert_eq!(position, LEN);
        }
        process.consumed.entry(self.channel).or_default()[ring as usize] = position;
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        let process = self.process.borrow();
        let bytes = match (self.channel, process.tables(self.channel)) {
            (_, Some([first, second])) => [&first.bytes[..], &second.bytes].concat(),
            (CONTROL, _) => process.control.bytes.clone(),
            _ => process.main.bytes.clone(),
        };
        buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]);
    }

    fn load(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn ring_positions(&self, _: u32) -> io::Result<Positions> {
        let head = match self.channel {
            CONTROL => self.process.borrow().control.head,
            _ => 0,
        };
        Ok(Positions { head, claimed: 0 })
    }
}

fn files(process: &Rc<RefCell<Process>>) -> [(String, File); 4] {
    [CONTROL, MAIN, SIZES, NAMES].map(|channel| {
        let process = process.clone();
        (channel.to_owned(), File { process, channel })
    })
}

/// Opens a session and adds the files of processes.
fn session(output: &Path, in_chunks: bool, all: &[&Rc<RefCell<Process>>]) -> Session<File> {
    let note = RecordingNote::default();
    let hostname = Some("host".to_owned());
    let mut session = match in_chunks {
        true => Session::open_in_chunks(output, &note, hostname),
        false => Session::open(output, &note, hostname),
    }
    .unwrap();
    session.set_channels([MAIN, SIZES, NAMES].map(str::to_owned).to_vec());
    for process in all {
        let name = format!("{0}.{0}", process.borrow().pid);
        for (channel, file) in files(process) {
            session.add(&channel, &name, file).unwrap();
        }
    }
    session
}

/// The counters in traces, and the number of lost events.
fn read(directory: &Path) -> (Vec<Counter>, u64) {
    let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
    let (mut counters, mut lost) = (Counters::default(), 0);
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => assert!(counters.add(&event), "{}", event.class.name),
            Item::Lost(one) => {
                let usertrace_reader::LossKind::Events(events) = one.kind else {
                    panic!("{one:?}");
                };
                lost += events;
            }
            Item::Error(error) => panic!("{error}"),
        }
    }
    (counters.sums(), lost)
}

fn usertrace(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Writes the counters of a dead process.
fn write(directory: &Path, version: Version) -> SessionSummary {
    let process = Process::new(7);
    process.borrow_mut().work();
    process.borrow_mut().dead = true;
    fs::create_dir_all(directory).unwrap();
    let mut session = session(directory, false, &[]);
    session.set_version(version);
    for (channel, file) in files(&process) {
        session.add(&channel, "7.7", file).unwrap();
    }
    session.finish().unwrap()
}

/// In both versions of CTF, this reader and `babeltrace2` read what was counted.
///
/// Requirements: F1, E7
#[test]
fn counters_are_read_as_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut printed = Vec::new();
    for (name, version) in [("1", Version::V1_8), ("2", Version::V2)] {
        let path = directory.path().join(name);
        let summary = write(&path, version);
        assert_eq!(summary.problems, [""; 0]);
        let process = &summary.processes[0];
        // Two CPUs count the same of `malloc`, and of a path.
        assert_eq!((process.events, process.lost, process.damaged), (6, 0, 0));
        assert_eq!(read(&path), (worked(), 0));
        let mut babeltrace = match version {
            Version::V1_8 => Command::new("babeltrace2"),
            Version::V2 => tools::babeltrace(),
        };
        let output = babeltrace.arg(&path).env("TZ", "UTC").output().unwrap();
        let text = stdout(&output);
        assert_eq!(
            output.stderr,
            b"",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 6, "{text}");
        let view = usertrace(directory.path(), &["view", name]);
        if version == Version::V1_8 {
            assert_eq!(stdout(&view), text);
        }
        printed.push(
            lines
                .iter()
                .map(|line| line.trim_end().to_owned())
                .collect::<Vec<_>>(),
        );
    }
    printed.iter_mut().for_each(|lines| lines.sort());
    assert_eq!(printed[0], printed[1]);
    let calloc = printed[0].iter().find(|line| line.contains("calloc"));
    for part in [
        "usertrace:count: { cpu_id = 1 }, ",
        "event = \"libc:calloc\", channel = \"sizes\", cpu_id = 1, key_name = \"from\", key = \"\", ",
        "value_name = \"size\", count = 1, values = 1, sum = 1099511627776, ",
    ] {
        assert!(calloc.unwrap().contains(part), "{calloc:?}");
    }
}

/// Counters of running processes are in snapshots, and nothing is consumed.
#[test]
fn snapshots_have_counters() {
    let process = Process::new(7);
    process.borrow_mut().work();
    process.borrow_mut().lost = 5;
    let directory = tempfile::tempdir().unwrap();
    let files = files(&process).into();
    let taken = snapshot_process(directory.path(), Some("host"), files, Version::V1_8);
    let summary = taken.unwrap().unwrap();
    assert_eq!((summary.events, summary.lost, summary.damaged), (6, 5, 0));
    assert_eq!(read(directory.path()), (worked(), 5));
    assert!(process.borrow().consumed.is_empty());
}

/// However often a recorder is killed, the counters are exact in the end. Those of a running
/// process are never consumed, those of a dead one are once they are written.
///
/// Requirements: A10, C5
#[test]
fn killed_recorders_lose_and_double_nothing() {
    for in_chunks in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (Process::new(7), Process::new(8));
        let all = [&first, &second];
        for round in 0..4 {
            let mut session = session(directory.path(), in_chunks, &all);
            session.drain(false, Instant::now()).unwrap();
            first.borrow_mut().work();
            second.borrow_mut().work();
            second.borrow_mut().lost += 1;
            session.drain(false, Instant::now()).unwrap();
            if round % 2 == 1 {
                session.complete().unwrap();
            }
            if in_chunks && round == 2 {
                session.rotate().unwrap().unwrap();
                first.borrow_mut().work();
                second.borrow_mut().work();
            }
            if round == 3 {
                first.borrow_mut().dead = true;
                session.drain(false, Instant::now()).unwrap();
                let consumed = first.borrow().consumed.clone();
                assert_eq!(consumed[SIZES], [LEN; 2]);
                assert_eq!(consumed[NAMES], [LEN; 2]);
            }
            // It is killed: nothing is finished.
            drop(session);
        }
        let mut session = session(directory.path(), in_chunks, &all);
        let summary = session.finish().unwrap();
        assert_eq!(summary.problems, [""; 0]);
        let (counters, lost) = read(directory.path());
        let times = if in_chunks { 10 } else { 8 };
        let expected: Vec<_> = worked()
            .into_iter()
            .map(|counter| Counter {
                count: counter.count * times,
                values: counter.values * times,
                sum: counter.sum * i128::from(times),
                histogram: counter
                    .histogram
                    .iter()
                    .map(|count| count * times)
                    .collect(),
                ..counter
            })
            .collect();
        assert_eq!((counters, lost), (expected, 4));
    }
}

/// Each chunk has the state of all counters at its end, so the last chunk alone has what all of
/// them have.
#[test]
fn chunks_have_complete_states() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(7);
    let mut session = session(directory.path(), true, &[&process]);
    let mut chunks = Vec::new();
    for round in 1..=3 {
        process.borrow_mut().work();
        session.drain(false, Instant::now()).unwrap();
        let chunk = session.rotate().unwrap().unwrap();
        let (counters, _) = read(&chunk);
        assert_eq!(counters[0].count, 100 * round);
        chunks.push(chunk);
    }
    session.finish().unwrap();
    let (all, _) = read(directory.path());
    assert_eq!(all[0].count, 300);
    assert_eq!(all, read(chunks.last().unwrap()).0);
}

/// A process that writes anything to its tables loses its own counters only, and that is said.
///
/// Requirements: A11, F4
#[test]
fn hostile_tables_harm_no_other_process() {
    let directory = tempfile::tempdir().unwrap();
    let (good, bad) = (Process::new(7), Process::new(8));
    good.borrow_mut().work();
    {
        let mut bad = bad.borrow_mut();
        let mut state = 1u64;
        for cpu in 0..2 {
            for byte in &mut bad.sizes[cpu].bytes {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
        }
        // An event that no description is of.
        bad.names[0].count(77, &Key::None, None);
    }
    good.borrow_mut().dead = true;
    bad.borrow_mut().dead = true;
    let summary = session(directory.path(), false, &[&good, &bad])
        .finish()
        .unwrap();
    let damaged: Vec<_> = summary.processes.iter().map(|of| of.damaged).collect();
    let cells = LEN / 640;
    assert_eq!(damaged, [0, 2 * cells + 1]);
    assert_eq!(read(directory.path()), (worked(), 2 * cells + 1));
}

/// The text, JSON and OpenMetrics of `usertrace stat DIR`.
#[test]
fn stat_shows_counters_of_traces() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("traces"), Version::V1_8);
    let text = stdout(&usertrace(directory.path(), &["stat", "traces"]));
    let expected = "\
EVENT        KEY                     VALUE  COUNT            SUM             MEAN            MIN            MAX
libc:malloc  from=-1                 size     100           4950             49.5              0             99
shop:served  path=/api \\\"x\\\"\\n\\\\  -          6              -                -              -              -
";
    let lines = |text: &str| -> Vec<String> {
        let words = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        words.collect()
    };
    assert_eq!(lines(&text)[..3], lines(expected)[..3], "{text}");
    assert!(
        text.contains("libc:malloc size from=-1:\n(..., 0] "),
        "{text}"
    );
    assert!(text.contains("\n[32, 64)       32 |@@@"), "{text}");
    assert!(text.contains("\n[1T, 2T)       1 |@@@"), "{text}");
    let top = stdout(&usertrace(
        directory.path(),
        &["stat", "--top", "1", "traces"],
    ));
    assert!(top.contains("and 3 counters with fewer events"), "{top}");
    assert!(!top.contains("shop:served"), "{top}");

    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let json = parsed(&stdout(&usertrace(
        directory.path(),
        &["stat", "--json", "traces"],
    )));
    assert_eq!((&json["lost"], &json["overflow"]), (&json!(0), &json!(0)));
    let malloc = json!({
        "event": "libc:malloc", "channel": "sizes", "key_name": "from", "key": "-1",
        "value_name": "size", "count": 100, "values": 100, "sum": 4950, "mean": 49.5,
        "min": 0, "max": 99,
        "histogram": [
            { "to": 0, "count": 1 }, { "from": 1, "to": 1, "count": 1 },
            { "from": 2, "to": 3, "count": 2 }, { "from": 4, "to": 7, "count": 4 },
            { "from": 8, "to": 15, "count": 8 }, { "from": 16, "to": 31, "count": 16 },
            { "from": 32, "to": 63, "count": 32 }, { "from": 64, "to": 127, "count": 36 },
        ],
    });
    assert_eq!(json["counters"][0], malloc);
    let served = json!({
        "event": "shop:served", "channel": "names", "key_name": "path", "key": "/ü", "count": 1,
    });
    assert_eq!(json["counters"][2], served);

    let arguments = [
        "stat",
        "--openmetrics",
        "m.prom",
        "--json=all.json",
        "traces",
    ];
    let output = usertrace(directory.path(), &arguments);
    assert!(stdout(&output).contains("libc:malloc"));
    let json_file = fs::read_to_string(directory.path().join("all.json")).unwrap();
    assert_eq!(parsed(&json_file)["counters"], json["counters"]);
    let metrics = fs::read_to_string(directory.path().join("m.prom")).unwrap();
    let families = open_metrics::parse(&metrics);
    let samples = |family: &str| &families[family].samples;
    let total: f64 = samples("usertrace_events")
        .iter()
        .map(|sample| sample.value)
        .sum();
    assert_eq!(total, 108.0);
    let odd = samples("usertrace_events").iter();
    assert!(odd.clone().any(|sample| {
        sample
            .labels
            .get("key")
            .is_some_and(|key| key == "/api \"x\"\n\\")
    }));
    let buckets = samples("usertrace_value").iter();
    let buckets = buckets.filter(|sample| sample.labels["event"] == "libc:malloc");
    let below_four = buckets
        .clone()
        .find(|sample| sample.labels.get("le").is_some_and(|le| le == "3.0"));
    assert_eq!(below_four.unwrap().value, 4.0);
    let sum = buckets.clone().find(|sample| sample.name.ends_with("_sum"));
    assert_eq!(sum.unwrap().value, 4950.0);
    assert_eq!(samples("usertrace_uncounted_events")[0].value, 0.0);
}

/// Negative values have no sum in OpenMetrics, whose sums are counters.
#[test]
fn negative_values_are_valid_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(7);
    {
        let mut process = process.borrow_mut();
        assert!(process.control.meta(START, "9 t:signed 6 s64 size"));
        process.size(0, 9, Key::None, -5);
        process.size(1, 9, Key::None, 3);
        process.dead = true;
    }
    session(directory.path(), false, &[&process])
        .finish()
        .unwrap();
    let (counters, _) = read(directory.path());
    assert_eq!(
        (counters[0].sum, counters[0].min, counters[0].max),
        (-2, -5, 3)
    );
    let path: PathBuf = directory.path().join("m.prom");
    let arguments = ["stat", "--openmetrics", "m.prom", "."];
    stdout(&usertrace(directory.path(), &arguments));
    let families = open_metrics::parse(&fs::read_to_string(path).unwrap());
    let samples = &families["usertrace_value"].samples;
    assert!(
        samples
            .iter()
            .all(|sample| sample.name.ends_with("_bucket"))
    );
    assert_eq!(families["usertrace_value_min"].samples[0].value, -5.0);
}

/// Wrong requests and combinations are refused with the place.
#[test]
fn wrong_command_lines_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["stat"][..], "name a program"),
        (&["stat", "-e", "a:b hits(x)", "--", "true"], "^"),
        (&["stat", "-e", "a:b hist(x) by", "--", "true"], "^"),
        (&["stat", "--top", "0", "."], "--top"),
        (&["stat", "--interval", "0", "--", "true"], "0.1"),
        (&["stat", "--interval", "1", "."], "--interval"),
        (&["stat", ".", "--", "true"], "cannot be used with"),
    ] {
        let output = usertrace(directory.path(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    let output = usertrace(directory.path(), &["stat", "."]);
    assert_eq!(output.status.code(), Some(1));
}

/// Other programs' events of that name are no counters, whatever fields they have.
#[test]
fn forged_states_are_no_counters() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(7);
    {
        let mut process = process.borrow_mut();
        assert!(
            process
                .control
                .meta(START, "9 usertrace:count 6 str event;u64 count")
        );
        assert!(process.main.event(9, START + 1, b"x\0\x01\0\0\0\0\0\0\0"));
        process.work();
        process.dead = true;
    }
    session(directory.path(), false, &[&process])
        .finish()
        .unwrap();
    let text = stdout(&usertrace(directory.path(), &["stat", "."]));
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("libc:malloc  "))
            .count(),
        1
    );
    let read = babeltrace::lines(directory.path());
    assert_eq!(read.lines.len(), 7);
}

/// The page of `usertrace report` shows counters with their distribution.
#[test]
fn report_shows_counters() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("traces"), Version::V2);
    let output = usertrace(directory.path(), &["report", "-o", "page.html", "traces"]);
    stdout(&output);
    let mut browser = Browser::start(1280, 900);
    browser.open(&directory.path().join("page.html"));
    browser.wait("document.documentElement.dataset.ready");
    let rows = browser.text(
        "JSON.stringify([...document.querySelectorAll('#counters tbody tr')]\
         .map(row => [...row.cells].map(cell => cell.textContent)))",
    );
    let rows: Vec<Vec<String>> = serde_json::from_str(&rows).unwrap();
    let expected = [
        "libc:malloc",
        "from=-1",
        "size",
        "100",
        "4\u{202f}950",
        "50",
        "0",
        "99",
    ];
    assert_eq!(rows[0][..8], expected);
    assert!(rows[0][8].ends_with(" ≤ 0 … 64 to 128"), "{:?}", rows[0]);
    assert_eq!(
        rows[0][8]
            .chars()
            .filter(|c| "▁▂▃▄▅▆▇█".contains(*c))
            .count(),
        8
    );
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[1][1], "path=/api \"x\"\n\\");
    assert_eq!(browser.complaints, [""; 0]);
}

/// `top` counts what a channel counts: without what was there before, and exactly also after the
/// process has ended. Conditions are about fields, so none of it fulfils one.
///
/// Requirements: E7
#[test]
fn top_has_counted_events() {
    for (from_now, condition) in [(false, None), (true, None), (false, Some("size > 0"))] {
        let process = Process::new(7);
        process.borrow_mut().work();
        let mut top = ProcessCounter::new("tr", "7.7")
            .with_condition(condition.map(|text| text.parse().unwrap()));
        for channel in [MAIN, SIZES, NAMES, CONTROL] {
            let process = Rc::clone(&process);
            let file = File { process, channel };
            top.add(channel, file, from_now).unwrap();
        }
        let mut counted = |rounds: u64| {
            top.step(Instant::now()).unwrap();
            let events = top.counted().events;
            let counts = events.iter().map(|event| {
                assert_eq!((event.events.estimated, event.bytes.seen), (0.0, 0));
                (event.name.clone(), event.events.seen)
            });
            let expected = [("libc:calloc", 1), ("libc:malloc", 100), ("shop:served", 7)]
                .map(|(name, count)| (name.to_owned(), count * rounds));
            let expected = match (rounds, condition) {
                (1.., None) => expected.to_vec(),
                _ => Vec::new(),
            };
            assert_eq!(
                counts.collect::<Vec<_>>(),
                expected,
                "{from_now} {condition:?}"
            );
        };
        let before = u64::from(!from_now);
        counted(before);
        process.borrow_mut().work();
        counted(before + 1);
        process.borrow_mut().work();
        process.borrow_mut().dead = true;
        counted(before + 2);
        counted(before + 2);
    }
}
