//! `babeltrace2` reads the traces: each event, in order, each discarded one, without complaints
//! (E6, E7, E8, F1).

use std::path::Path;

use usertrace_ctf::{Clock, Identity, ProcessSummary, ProcessWriter};
use usertrace_ring::{Channel, Frozen, Positions, RingReader, SUBBUF_HEADER_LEN, WaitPolicy};
use usertrace_sys::uapi::{LttClockSync, LttInfoChannel};

use usertrace_testing::{RingWriter, babeltrace};

/// 2023-11-14 22:13:20 UTC, at a cycle of which there are 2.5 in a nanosecond.
pub(super) const START: LttClockSync = LttClockSync {
    cycles: 1_000_000,
    monotonic: 5_000_000_000,
    realtime: 1_700_000_000_000_000_000,
    freq: 2_500_000_000,
};

pub(super) fn channel(rings: u32) -> Channel {
    channel_of(rings, 0, 0)
}

/// `scope` and `mode`: as in the header.
fn channel_of(rings: u32, scope: u32, mode: u32) -> Channel {
    Channel::new(&LttInfoChannel {
        scope,
        mode,
        subbuf_size: 4096,
        subbuf_count: 4,
        nr_rings: rings,
        control_stride: 128,
        ..LttInfoChannel::default()
    })
    .unwrap()
}

pub(super) fn identity(comm: &str, pid: u32) -> Identity {
    Identity {
        trace: "a trace".into(),
        comm: comm.into(),
        pid,
        process: 1,
        hostname: Some("host".into()),
    }
}

pub(super) fn frozen(ring: &RingWriter) -> Frozen<'_> {
    let (head, claimed) = (ring.head, ring.claimed);
    Frozen::new(&ring.bytes, Positions { head, claimed })
}

/// Writes rings in their state at the end of a process.
pub(super) fn write(
    directory: &Path,
    who: Identity,
    control: &RingWriter,
    main: &[RingWriter],
) -> ProcessSummary {
    let clock = Clock::new(&START, &[]);
    let channel = channel(main.len() as u32);
    let reader =
        |ring: &RingWriter| RingReader::dump(channel.format(), &mut frozen(ring), clock.max_time());
    let mut writer = ProcessWriter::create(directory, who, clock).unwrap();
    writer.set_control(vec![reader(control)]);
    let readers = main.iter().map(reader).collect();
    writer
        .add_channel("main", 1, &channel, readers, &[])
        .unwrap();
    writer
        .read_control(0, &mut frozen(control), control.head, WaitPolicy::Last)
        .unwrap();
    for (n, ring) in main.iter().enumerate() {
        writer
            .read(0, n, &mut frozen(ring), ring.head, WaitPolicy::Last)
            .unwrap();
        writer.end_ring(0, n, ring.lost).unwrap();
    }
    writer.finish(None).unwrap()
}

/// A writer for rings that are still being written.
pub(super) fn writer_of(directory: &Path, clock: Clock, channel: &Channel) -> ProcessWriter {
    let mut writer = ProcessWriter::create(directory, identity("p", 1), clock).unwrap();
    let reader = || RingReader::live(channel.format(), 0, clock.max_time());
    writer.set_control(vec![reader()]);
    let readers = (0..channel.nr_rings()).map(|_| reader()).collect();
    writer
        .add_channel("main", 1, channel, readers, &[])
        .unwrap();
    writer
}

pub(super) fn ring(cpu: u32) -> RingWriter {
    RingWriter::new(4096, 4, cpu)
}

pub(super) fn control(lines: &[&str]) -> RingWriter {
    let mut ring = ring(0);
    for line in lines {
        assert!(ring.meta(START.cycles, line));
    }
    ring
}

pub(super) fn at(ns: u64) -> u64 {
    START.cycles + ns * 5 / 2
}

/// Events are read with the contexts that were described before the first of them.
///
/// Requirements: F7
#[test]
fn contexts_are_in_front_of_fields() {
    let payload = [&7u32.to_le_bytes()[..], &[0; 4], &[5]].concat();
    let described = ["@1 u32 vtid", "1 a:b 6 u8 x", "@2 u64 app.x", "@1 u32 vtid"];
    let directory = tempfile::tempdir().unwrap();
    let mut main = ring(0);
    main.event(1, at(100), &payload);
    let summary = write(
        directory.path(),
        identity("p", 1),
        &control(&described),
        &[main],
    );
    assert_eq!((summary.events, summary.damaged), (1, 0));
    let lines = babeltrace::lines(directory.path()).lines;
    assert!(
        lines[0].ends_with("{ cpu_id = 0 }, { vtid = 7 }, { x = 5 }"),
        "{lines:?}"
    );

    // Different contexts for the same channel, and contexts after events were read, are refused.
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new(&START, &[]);
    let mut writer = writer_of(directory.path(), clock, &channel(1));
    let mut described = control(&["1 a:b 6 u8 x", "@1 u32 vtid", "@1 u64 vtid", "@1 fmt x"]);
    let mut main = ring(0);
    main.event(1, at(100), &payload);
    let read = |writer: &mut ProcessWriter, control: &RingWriter, main: &RingWriter| {
        let (mut control_memory, mut memory) = (frozen(control), frozen(main));
        writer
            .read_control(0, &mut control_memory, control.head, WaitPolicy::Wait)
            .unwrap();
        writer
            .read(0, 0, &mut memory, main.head, WaitPolicy::Wait)
            .unwrap();
        let summary = writer.summary();
        (summary.events, summary.damaged)
    };
    assert_eq!(read(&mut writer, &described, &main), (1, 2));
    described.meta(START.cycles, "2 a:c 6");
    described.meta(START.cycles, "@1 u16 vtid");
    main.event(1, at(200), &payload);
    assert_eq!(read(&mut writer, &described, &main), (2, 3));
    writer.finish(None).unwrap();
    assert_eq!(babeltrace::lines(directory.path()).lines.len(), 2);

    // A channel that was read without contexts.
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer_of(directory.path(), Clock::new(&START, &[]), &channel(1));
    let mut described = control(&["1 a:b 6 u8 x"]);
    let mut main = ring(0);
    main.event(1, at(100), &[5]);
    assert_eq!(read(&mut writer, &described, &main), (1, 0));
    described.meta(START.cycles, "@1 u32 vtid");
    main.event(1, at(200), &[6]);
    assert_eq!(read(&mut writer, &described, &main), (2, 1));
    writer.finish(None).unwrap();
    let lines = babeltrace::lines(directory.path()).lines;
    assert!(lines[1].ends_with("{ cpu_id = 0 }, { x = 6 }"), "{lines:?}");
}

#[test]
fn fields_are_printed_with_their_values() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(&[
        "1 all:types 6 u8 a;u16 b;u32 c;u64 d;x8 e;x16 f;x32 g;x64 h",
        "2 all:signs 14 s8 a;s16 b;s32 c;s64 d;f32 e;f64 f;bool g;str h",
        "65519 all:none 99",
    ]);
    let mut main = ring(0);
    let mut payload = vec![1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    payload.extend([
        0xab, 0xcd, 0xab, 0xff, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde, 0, 0, 0, 0x80,
    ]);
    main.event(1, at(100), &payload);
    let mut payload = vec![0xff, 0xfe, 0xff, 0xfd, 0xff, 0xff, 0xff];
    payload.extend((-4i64).to_le_bytes());
    payload.extend(1.5f32.to_le_bytes());
    payload.extend((-0.25f64).to_le_bytes());
    payload.extend(b"\x01some \"text\"\0");
    main.event(2, at(200), &payload);
    main.event(0xffef, at(300), b"");
    let summary = write(directory.path(), identity("prog", 42), &control, &[main]);
    let read = babeltrace::lines(directory.path());
    assert_eq!(read.lines.len(), 3);
    assert!(
        read.lines[0].starts_with("[1700000000.000000100] "),
        "{}",
        read.lines[0]
    );
    assert!(
        read.lines[0].ends_with(
            "{ a = 1, b = 2, c = 3, d = 4, e = 0xAB, f = 0xABCD, g = 0xFF, h = 0x80000000DEADBEEF }"
        ),
        "{}",
        read.lines[0]
    );
    assert!(read.lines[1].ends_with(
        "{ a = -1, b = -2, c = -3, d = -4, e = 1.5, f = -0.25, g = 1, h = \"some \\\"text\\\"\" }"
    ), "{}", read.lines[1]);
    assert!(read.lines[2].contains(" all:none: "), "{}", read.lines[2]);
    assert!(
        read.lines[0].contains(" host:prog:(42) all:types: { cpu_id = 0 }, "),
        "{}",
        read.lines[0]
    );
    assert_eq!(
        (summary.events, summary.lost, summary.event_kinds),
        (3, 0, 3)
    );
    assert_eq!(summary.first_event_ns, Some(1_700_000_000_000_000_100));
    assert_eq!(summary.last_event_ns, Some(1_700_000_000_000_000_300));
    assert_eq!(summary.last_event(), "2023-11-14T22:13:20.000000300Z");
}

#[test]
fn any_name_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(&[
        r#"1 a"b\c:d\n"e\101 0 u8 int;u8 a-b;u8 a+b;u8 ü;u8 int;u8 event;u8 1"#,
        "2 ä:ö 3 str 日本",
        "3 x:%s{};/**/ 0 u8 }",
    ]);
    let mut main = ring(0);
    main.event(1, at(1), &[1, 2, 3, 4, 5, 6, 7]);
    main.event(2, at(2), "日本\0".as_bytes());
    main.event(3, at(3), &[9]);
    let mut who = identity("\"\\\n\u{7f}\u{9b}é", 1);
    who.trace = "\"t\\".into();
    who.hostname = Some("\t1".into());
    write(directory.path(), who, &control, &[main]);
    let read = babeltrace::lines(directory.path());
    assert_eq!(read.lines.len(), 3);
    assert!(
        read.lines[0].contains(r#" a"b\c:d\n"e\101: "#),
        "{}",
        read.lines[0]
    );
    assert!(
        read.lines[0].contains("{ int = 1, a_b = 2, a_b_2 = 3, "),
        "{}",
        read.lines[0]
    );
    assert!(
        read.lines[1].contains(" ä:ö: ") && read.lines[1].contains("日本"),
        "{}",
        read.lines[1]
    );
    assert!(
        read.lines[2].contains(" x:%s{};/**/: "),
        "{}",
        read.lines[2]
    );
}

/// Losses are counted wherever they are: first, in between, or last.
///
/// Requirements: E7
#[test]
fn lost_events_are_counted_exactly() {
    for (first, between, last) in [
        (0, 0, 0),
        (3, 0, 0),
        (0, 4, 0),
        (0, 0, 5),
        (3, 4, 5),
        (1, 1, 1),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let control = control(&["1 t:e 0 u64 n"]);
        let mut main = ring(0);
        main.lost = first;
        for n in 0..600u64 {
            if n == 300 {
                main.lost += between;
            }
            assert!(main.event(1, at(n), &n.to_le_bytes()));
        }
        main.lost += last;
        let summary = write(directory.path(), identity("p", 1), &control, &[main]);
        let read = babeltrace::lines(directory.path());
        assert_eq!(read.lines.len(), 600);
        assert_eq!(
            read.discarded,
            first + between + last,
            "{first} {between} {last}"
        );
        assert_eq!(summary.lost, read.discarded);
    }
}

#[test]
fn ring_that_lost_everything_reports_the_loss() {
    let directory = tempfile::tempdir().unwrap();
    let mut main = ring(0);
    main.lost = 7;
    write(directory.path(), identity("p", 1), &control(&[]), &[main]);
    let read = babeltrace::lines(directory.path());
    assert_eq!((read.lines.len(), read.discarded), (0, 7));
}

#[test]
fn a_gap_counts_as_one_discarded_event() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(&["1 t:e 0 u64 n"]);
    let mut main = ring(0);
    for n in 0..900u64 {
        main.event(1, at(n), &n.to_le_bytes());
    }
    main.bytes[4096 + 2048..8192].fill(0);
    main.store(8192 + SUBBUF_HEADER_LEN, 77);
    let summary = write(directory.path(), identity("p", 1), &control, &[main]);
    let read = babeltrace::lines(directory.path());
    assert_eq!(read.discarded, 2);
    assert_eq!((summary.holes, summary.damaged), (1, 1));
    assert_eq!(read.lines.len() as u64, summary.events);
    assert!(read.lines.last().unwrap().ends_with("{ n = 899 }"));
}

/// Rings and processes are merged by time.
///
/// Requirements: E8
#[test]
fn streams_are_merged_by_time() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(&["1 t:e 0 u64 n"]);
    for process in 0..2u64 {
        let mut rings: Vec<_> = (0..3).map(ring).collect();
        for n in 0..300u64 {
            let (ring, of) = (&mut rings[(n * 7 % 3) as usize], n % 2);
            if of == process {
                assert!(ring.event(1, at(10 * n), &n.to_le_bytes()));
            }
        }
        write(
            directory.path(),
            identity("p", process as u32),
            &control,
            &rings,
        );
    }
    let read = babeltrace::lines(directory.path());
    let got: Vec<_> = read
        .lines
        .iter()
        .map(|line| line.rsplit("n = ").next().unwrap())
        .collect();
    let want: Vec<_> = (0..300).map(|n| format!("{n} }}")).collect();
    assert_eq!(got, want);
}

#[test]
fn a_trace_of_nothing_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let summary = write(
        directory.path(),
        identity("p", 1),
        &control(&[]),
        &[ring(0), ring(1)],
    );
    assert_eq!(summary.last_event_ns, None);
    assert_eq!(summary.last_event(), "-");
    assert!(babeltrace::lines(directory.path()).lines.is_empty());
}

/// Times that step back, which only damage causes.
///
/// Requirements: F4
#[test]
fn time_stepping_back_does_not_cost_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(&["1 t:e 0 u64 n"]);
    let mut main = ring(0);
    for n in 0..600u64 {
        let time = if n < 300 { at(n) } else { at(n) - 1_000 };
        main.event(1, time, &n.to_le_bytes());
    }
    // Only a sub-buffer's header can step back: within one, differences are positive.
    let kept: u64 = main.accepted.iter().take_while(|e| e.1 <= at(299)).count() as u64;
    assert!(kept >= 300);
    let summary = write(directory.path(), identity("p", 1), &control, &[main]);
    let read = babeltrace::lines(directory.path());
    assert!(summary.damaged > 0);
    assert_eq!(read.lines.len() as u64, summary.events);
}

#[test]
fn clock_frequency_may_be_refined() {
    let directory = tempfile::tempdir().unwrap();
    let start = LttClockSync { freq: 0, ..START };
    let later = LttClockSync {
        cycles: start.cycles + 5_000_000_000,
        monotonic: start.monotonic + 2_000_000_000,
        ..start
    };
    let clock = Clock::new(&start, &[]);
    let mut writer = writer_of(directory.path(), clock, &channel(1));
    let control = control(&["1 t:e 0 u64 n"]);
    let mut main = ring(0);
    main.event(1, at(4_000), &[0; 8]);
    writer
        .read_control(0, &mut frozen(&control), control.head, WaitPolicy::Last)
        .unwrap();
    writer
        .read(0, 0, &mut frozen(&main), main.head, WaitPolicy::Last)
        .unwrap();
    writer.finish(Some(Clock::new(&start, &[later]))).unwrap();
    let read = babeltrace::lines(directory.path());
    assert!(
        read.lines[0].starts_with("[1700000000.000004000] "),
        "{}",
        read.lines[0]
    );
}

#[test]
fn a_machine_without_a_calendar_can_be_traced() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::new(
        &LttClockSync {
            realtime: 100,
            ..START
        },
        &[],
    );
    let mut writer = writer_of(directory.path(), clock, &channel(1));
    let control = control(&["1 t:e 0 u64 n"]);
    let mut main = ring(0);
    main.event(1, at(4_000), &[0; 8]);
    writer
        .read_control(0, &mut frozen(&control), control.head, WaitPolicy::Last)
        .unwrap();
    writer
        .read(0, 0, &mut frozen(&main), main.head, WaitPolicy::Last)
        .unwrap();
    writer.finish(None).unwrap();
    let read = babeltrace::lines(directory.path());
    assert!(
        read.lines[0].starts_with("[0.000004100] "),
        "{}",
        read.lines[0]
    );
}

/// Reads rings while they are written, and then to their end.
struct Live {
    directory: tempfile::TempDir,
    writer: ProcessWriter,
}

impl Live {
    fn new(channel: &Channel, control: &RingWriter) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::new(&START, &[]);
        let mut writer = writer_of(directory.path(), clock, channel);
        let (memory, head) = (&mut frozen(control), control.head);
        let read = writer.read_control(0, memory, head, WaitPolicy::Last);
        assert_eq!(read.unwrap(), head);
        Self { directory, writer }
    }

    fn read(&mut self, n: usize, ring: &mut RingWriter) {
        let read = self
            .writer
            .read(0, n, &mut frozen(ring), ring.head, WaitPolicy::Wait);
        ring.consumed = read.unwrap();
        assert_eq!(ring.consumed, ring.head);
    }

    fn finish(mut self, rings: &[RingWriter]) -> (ProcessSummary, babeltrace::Lines, Vec<String>) {
        for (n, ring) in rings.iter().enumerate() {
            self.writer.end_ring(0, n, ring.lost).unwrap();
        }
        let summary = self.writer.finish(None).unwrap();
        let read = babeltrace::lines(self.directory.path());
        let files = std::fs::read_dir(&summary.directory).unwrap();
        let mut files: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "metadata")
            .collect();
        files.sort();
        (summary, read, files)
    }
}

/// Overwritten sub-buffers are discarded packets, wherever the gap is.
///
/// Requirements: D3
#[test]
fn overwritten_sub_buffers_are_discarded_packets() {
    for (first, gap) in [(0, 1300), (300, 1300), (300, 5000), (2000, 0)] {
        let channel = channel_of(1, 0, 1);
        let mut main = ring(0);
        main.overwrites = true;
        let mut live = Live::new(&channel, &control(&["1 t:e 0 u64 n"]));
        let mut rings = [main];
        let event = |ring: &mut RingWriter, n: u64| {
            assert!(ring.event(1, at(n), &n.to_le_bytes()));
        };
        for n in 0..first {
            event(&mut rings[0], n);
            if n % 50 == 49 {
                live.read(0, &mut rings[0]);
            }
        }
        for n in first..first + gap {
            event(&mut rings[0], n);
        }
        live.read(0, &mut rings[0]);
        for n in first + gap..first + gap + 300 {
            event(&mut rings[0], n);
        }
        live.read(0, &mut rings[0]);
        let (summary, read, _) = live.finish(&rings);
        let what = format!("{first} {gap}");
        assert_eq!(read.discarded, 0, "{what}");
        assert_eq!(read.discarded_packets, summary.overwritten, "{what}");
        // A sub-buffer has room for 252 events. A gap may begin and end inside one.
        let missing = first + gap + 300 - summary.events;
        assert!(summary.overwritten >= missing.div_ceil(252), "{what}");
        assert!(summary.overwritten <= missing / 252 + 1, "{what}");
        assert_eq!(summary.overwritten == 0, gap == 0, "{what}");
        assert_eq!(read.lines.len() as u64, summary.events, "{what}");
        assert_eq!(summary.damaged + summary.holes + summary.corrupted, 0);
        let last = format!("{{ n = {} }}", first + gap + 299);
        assert!(read.lines.last().unwrap().ends_with(&last), "{what}");
    }
}

/// Each thread has a file with its name, as soon as it has events.
///
/// Requirements: D6
#[test]
fn each_thread_has_a_file_of_its_own() {
    let channel = channel_of(3, 1, 0);
    let mut live = Live::new(&channel, &control(&["1 t:e 0 u64 n"]));
    // Two rings. The first one later belongs to another thread, and then to the first thread again.
    let mut rings = [ring(70), ring(71), ring(0)];
    for n in 0..900u64 {
        let (first, second) = (&mut rings[0].clone(), &mut rings[1].clone());
        if n % 300 == 0 && n > 0 {
            first.cpu = [70, 72, 70][n as usize / 300];
            first.head = first.head.next_multiple_of(4096);
            first.store(rings[0].head, 0xffff | at(10 * n) << 16);
        }
        assert!(first.event(1, at(10 * n), &n.to_le_bytes()));
        assert!(second.event(1, at(10 * n + 5), &n.to_le_bytes()));
        rings[0] = first.clone();
        rings[1] = second.clone();
        if n % 41 == 0 {
            live.read(0, &mut rings[0]);
            live.read(1, &mut rings[1]);
        }
        if n == 450 {
            rings[0].lost += 3;
        }
    }
    live.read(0, &mut rings[0]);
    live.read(1, &mut rings[1]);
    let (summary, read, files) = live.finish(&rings);
    let name = |tid: u32, ns: u64, ring: u32| format!("main_{tid}_{}_{ring}", at(ns));
    let want = [
        name(70, 0, 0),
        name(70, 6000, 0),
        name(71, 5, 1),
        name(72, 3000, 0),
    ];
    assert_eq!(files, want);
    assert_eq!((summary.events, read.lines.len()), (1800, 1800));
    assert_eq!((read.discarded, summary.lost), (3, 3));
    for (n, line) in read.lines.iter().enumerate() {
        let tid = match n {
            n if n % 2 == 1 => 71,
            600..1200 => 72,
            _ => 70,
        };
        assert!(line.contains(&format!("{{ tid = {tid} }}, ")), "{line}");
        assert!(line.ends_with(&format!("{{ n = {} }}", n / 2)), "{line}");
    }
}

/// Forged headers that name the same thread at the same time do not hide other sub-buffers.
///
/// Requirements: A11
#[test]
fn forged_thread_times_do_not_hide_streams() {
    let channel = channel_of(2, 1, 0);
    let mut live = Live::new(&channel, &control(&["1 t:e 0 u64 n"]));
    let mut rings = [ring(1), ring(1)];
    for n in 0..2000u64 {
        for (which, ring) in rings.iter_mut().enumerate() {
            ring.cpu = 1 + (n / 252 % 2) as u32;
            assert!(ring.event(1, at(5), &n.to_le_bytes()));
            live.read(which, ring);
        }
    }
    let (summary, read, files) = live.finish(&rings);
    assert_eq!((summary.events, read.lines.len()), (4000, 4000));
    assert_eq!(files.len(), 16);
}

/// The events of a process's only ring have neither a CPU nor a thread.
#[test]
fn ring_of_a_process_names_no_cpu() {
    let channel = channel_of(1, 2, 0);
    let mut live = Live::new(&channel, &control(&["1 t:e 0 u64 n"]));
    let mut rings = [ring(0)];
    rings[0].event(1, at(5), &[1; 8]);
    live.read(0, &mut rings[0]);
    let (_, read, files) = live.finish(&rings);
    assert_eq!(files, ["main_0"]);
    assert_eq!(read.lines.len(), 1);
    assert!(!read.lines[0].contains("cpu_id"), "{}", read.lines[0]);
}

/// Rings of concurrency ids are not confused with CPUs.
///
/// Requirements: F1
#[test]
fn ring_of_a_concurrency_id_names_the_id() {
    let channel = channel_of(4, 3, 0);
    let mut live = Live::new(&channel, &control(&["1 t:e 0 u64 n"]));
    let mut rings = [0, 1, 2, 3].map(ring);
    for n in 0..100u64 {
        // The last ring is never used.
        let ring = &mut rings[n as usize % 3];
        assert!(ring.event(1, at(10 * n), &n.to_le_bytes()));
    }
    for (n, ring) in rings.iter_mut().enumerate() {
        live.read(n, ring);
    }
    let (summary, read, files) = live.finish(&rings);
    assert_eq!(files, ["main_cid_0", "main_cid_1", "main_cid_2"]);
    assert_eq!((summary.events, read.lines.len()), (100, 100));
    for (n, line) in read.lines.iter().enumerate() {
        assert!(
            line.contains(&format!("{{ mm_cid = {} }}, ", n % 3)),
            "{line}"
        );
        assert!(line.ends_with(&format!("{{ n = {n} }}")), "{line}");
        assert!(!line.contains("cpu_id"), "{line}");
    }
}

/// Events missing for lack of memory count as discarded, once for each sub-buffer.
///
/// Requirements: E7, F2
#[test]
fn pages_without_memory_are_discarded_events() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(&["1 t:e 0 u64 n"]);
    let mut main = RingWriter::new(8192, 4, 0);
    for n in 0..1900u64 {
        assert!(main.event(1, at(n), &n.to_le_bytes()));
    }
    // The second half of the second sub-buffer, and all of the third.
    for page in [3, 4, 5] {
        let lost = 0x4c54_544c_4f53_fffbu64.to_le_bytes();
        main.bytes[page * 4096..][..4096]
            .as_chunks_mut()
            .0
            .fill(lost);
    }
    let channel = Channel::new(&LttInfoChannel {
        subbuf_size: 8192,
        subbuf_count: 4,
        nr_rings: 1,
        control_stride: 128,
        ..LttInfoChannel::default()
    })
    .unwrap();
    let clock = Clock::new(&START, &[]);
    let of_main = RingReader::dump(channel.format(), &mut frozen(&main), clock.max_time());
    let of_control = RingReader::dump(
        self::channel(1).format(),
        &mut frozen(&control),
        clock.max_time(),
    );
    let mut writer = ProcessWriter::create(directory.path(), identity("p", 1), clock).unwrap();
    writer.set_control(vec![of_control]);
    writer
        .add_channel("main", 1, &channel, vec![of_main], &[])
        .unwrap();
    writer
        .read_control(0, &mut frozen(&control), control.head, WaitPolicy::Last)
        .unwrap();
    writer
        .read(0, 0, &mut frozen(&main), main.head, WaitPolicy::Last)
        .unwrap();
    let summary = writer.finish(None).unwrap();
    let read = babeltrace::lines(directory.path());
    assert_eq!((summary.holes, summary.damaged, read.discarded), (2, 0, 2));
    assert_eq!(read.lines.len() as u64, summary.events);
    let per_subbuf = (8192 - 64) / 16;
    let in_page = (4096 - 64) / 16;
    let want = (0..per_subbuf + in_page).chain(3 * per_subbuf..1900);
    for (line, n) in read.lines.iter().zip(want.clone()) {
        assert!(line.ends_with(&format!("{{ n = {n} }}")), "{line}");
    }
    assert_eq!(read.lines.len(), want.count());
}
