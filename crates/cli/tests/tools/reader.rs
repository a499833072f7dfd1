//! The reader prints traces exactly as `babeltrace2` does (E8, F1, B1).

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use usertrace_ctf::{StreamChannel, StreamOwner, StreamWriter, TraceWriter};
use usertrace_reader::{Item, LossKind, Patterns, Printer, ReadError, Reader, Selection};
use usertrace_sys::Scope;

use usertrace_testing::processes::{START, clock, event, info, processes, write};

/// The results of reading traces.
#[derive(Debug, Default)]
struct Read {
    text: Vec<u8>,
    events: u64,
    lost: u64,
    lost_packets: u64,
    problems: Vec<ReadError>,
}

impl Read {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.text);
        text.lines().map(str::to_owned).collect()
    }

    fn take(&mut self, reader: &mut Reader, printer: &mut Printer) {
        while let Some(item) = reader.next() {
            match item {
                Item::Event(event) => {
                    printer.event(&mut self.text, &event);
                    self.events += 1;
                }
                Item::Lost(lost) => {
                    assert!(lost.begin <= lost.end, "{lost:?}");
                    match lost.kind {
                        LossKind::Events(n) => self.lost = self.lost.saturating_add(n),
                        LossKind::Packets(n) => {
                            self.lost_packets = self.lost_packets.saturating_add(n)
                        }
                    }
                }
                Item::Error(error) => self.problems.push(error),
            }
        }
    }
}

fn read(directory: &Path) -> Read {
    select(directory, Selection::default())
}

fn select(directory: &Path, selection: Selection) -> Read {
    let mut read = Read::default();
    let mut reader = Reader::open(&[directory.to_owned()], selection).unwrap();
    read.take(&mut reader, &mut Printer::new());
    read
}

/// A trace of the event `t:e`, which has a number, and its first stream.
fn simple(directory: &Path, name: &str, pid: u32) -> (TraceWriter, StreamWriter) {
    let mut trace = TraceWriter::create(
        &directory.join(name),
        info(name, pid, None),
        clock(1_000_000_000),
    )
    .unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    trace.declare(&event("1 t:e 6 u64 n")).unwrap();
    let stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0));
    (trace, stream.unwrap())
}

/// The number of discarded items of this kind, according to the messages of `babeltrace2`.
fn discarded(stderr: &str, what: &str) -> u64 {
    let counts = stderr.lines().filter_map(|line| {
        let (_, rest) = line.split_once("Tracer discarded ")?;
        rest.split_once(what)?.0.parse::<u64>().ok()
    });
    counts.sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// All types with any bytes, contexts, scopes, channels and processes.
    ///
    /// Requirements: B1, E8, F7
    #[test]
    fn output_equals_that_of_babeltrace2(
        processes in prop::collection::vec(processes(), 1..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (pid, process) in (1..).zip(&processes) {
            write(directory.path(), pid, process);
        }
        let zone = std::env::var("TZ").unwrap_or_default();
        let (stdout, stderr) = usertrace_testing::babeltrace::printed(directory.path(), &zone);
        let read = read(directory.path());
        prop_assert!(read.problems.is_empty(), "{:?}", read.problems);
        let expected = String::from_utf8_lossy(&stdout);
        for (line, expected) in read.lines().iter().zip(expected.lines()) {
            prop_assert_eq!(line, expected);
        }
        prop_assert_eq!(read.text, stdout);
        prop_assert_eq!(read.lost, discarded(&stderr, " event"));
        prop_assert_eq!(read.lost_packets, discarded(&stderr, " packet"));
    }
}

/// For an empty text, `babeltrace2` 2.0.4 prints an earlier text, so the reader differs.
///
/// Requirements: B1
#[test]
fn empty_texts_are_empty() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t");
    let mut trace = TraceWriter::create(&path, info("p", 1, None), clock(7)).unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    let fields = "str a;c8[2] b;c8[] c;u8[] d";
    trace.declare(&event(&format!("1 t:e 6 {fields}"))).unwrap();
    trace.declare(&event("2 t:nothing 6")).unwrap();
    let channel = StreamChannel::new("main", 1);
    let mut stream = trace.stream(&channel, StreamOwner::Cpu(0)).unwrap();
    stream
        .event(1, 10_000_000, &[], b"x\0xx\x01\0\0\0x\0\0\0\0")
        .unwrap();
    stream
        .event(1, 10_000_000, &[], b"\0\0\0\0\0\0\0\0\0\0\0")
        .unwrap();
    stream.event(2, 10_000_000, &[], b"").unwrap();
    stream.finish().unwrap();
    let lines = read(directory.path()).lines();
    let empty = "{ a = \"\", b = \"\", _c_length = 0, c = \"\", _d_length = 0, d = [ ] }";
    assert!(lines[1].ends_with(empty), "{lines:?}");
    assert!(
        lines[2].ends_with(" p:(1) t:nothing: { cpu_id = 0 }, { }"),
        "{lines:?}"
    );
}

/// A label for several ranges is shown once, at its first range.
///
/// Requirements: B1
#[test]
fn labels_of_several_ranges_are_shown_as_babeltrace2_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t");
    let mut trace = TraceWriter::create(&path, info("p", 1, None), clock(7)).unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    let labels = "a=1,b=1..9,a=2..5,c=3,a=3..4,b=12";
    trace
        .declare(&event(&format!("1 t:e 6 s16{{{labels}}} x")))
        .unwrap();
    let mut stream = trace
        .stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0))
        .unwrap();
    for n in -1..13i16 {
        stream.event(1, 10_000_000, &[], &n.to_ne_bytes()).unwrap();
    }
    stream.finish().unwrap();
    let read = read(directory.path());
    assert_eq!(read.events, 14);
    let zone = std::env::var("TZ").unwrap_or_default();
    let (stdout, _) = usertrace_testing::babeltrace::printed(directory.path(), &zone);
    assert_eq!(
        String::from_utf8_lossy(&read.text),
        String::from_utf8_lossy(&stdout)
    );
    assert!(read.lines()[4].ends_with("{ x = ( \"a\", \"b\", \"c\" : container = 3 ) }"));
}

/// Writes a trace of 40 events in 4 packets. Returns the length of the stream after each packet.
fn four_packets(directory: &Path) -> (PathBuf, Vec<u64>) {
    let (_trace, mut stream) = simple(directory, "t", 1);
    let mut ends = Vec::new();
    for n in 0..40u64 {
        stream
            .event(1, 10_000_000 + n, &[], &n.to_ne_bytes())
            .unwrap();
        if n % 10 == 9 {
            stream.flush().unwrap();
            ends.push(stream.written());
        }
    }
    (directory.join("t/main_0"), ends)
}

/// A half-written end of a stream, left by a killed recorder, is skipped and reported.
///
/// Requirements: A10
#[test]
fn the_end_of_a_stream_may_be_missing() {
    let directory = tempfile::tempdir().unwrap();
    let (path, ends) = four_packets(directory.path());
    let bytes = fs::read(&path).unwrap();
    for len in 0..bytes.len() {
        fs::write(&path, &bytes[..len]).unwrap();
        let read = read(directory.path());
        let whole = ends.iter().filter(|&&end| end <= len as u64).count();
        let start = whole.checked_sub(1).map_or(0, |last| ends[last]);
        // A header, then events of 16 bytes, the last of which needs no padding.
        let of_cut = (len as u64 - start).saturating_sub(88) / 16;
        assert_eq!(read.events, 10 * whole as u64 + of_cut.min(10), "{len}");
        match &read.problems[..] {
            [] => assert_eq!(start, len as u64),
            [
                ReadError::CutShort {
                    path: of,
                    offset,
                    bytes,
                },
            ] => {
                assert_eq!((of, *offset, *bytes), (&path, start, len as u64 - start));
                assert!(read.problems[0].is_cut());
            }
            other => panic!("{len}: {other:?}"),
        }
    }
}

/// A half-written end of metadata is skipped and reported.
///
/// Requirements: A10
#[test]
fn the_end_of_metadata_may_be_missing() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut stream) = simple(directory.path(), "t", 1);
    stream.event(1, 10_000_000, &[], &[0; 8]).unwrap();
    stream.finish().unwrap();
    let path = directory.path().join("t/metadata");
    let text = fs::read_to_string(&path).unwrap();
    let event = text.find("event {").unwrap();
    for len in 0..text.len() {
        fs::write(&path, &text[..len]).unwrap();
        let read = read(directory.path());
        assert_eq!(read.events, u64::from(len + 1 == text.len()), "{len}");
        if event < len && len < text.len() - 1 {
            let ends = read
                .problems
                .iter()
                .filter(|problem| problem.is_cut())
                .count();
            assert_eq!(
                (ends, read.problems.len()),
                (1, 2),
                "{len}: {:?}",
                read.problems
            );
        }
    }
}

/// Damage in a packet costs the rest of that packet, and nothing else.
///
/// Requirements: F4
#[test]
fn damage_in_a_packet_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let (path, ends) = four_packets(directory.path());
    let whole = fs::read(&path).unwrap();
    // The id and the time of an event of the second packet; events have 16 bytes.
    let event = ends[0] as usize + 88 + 5 * 16;
    let not_of_it = "an event of a time that is not its packet's";
    for (at, bytes, what) in [
        (event, &[9, 0][..], "event id 9 is not declared"),
        (event + 2, &[0; 6][..], not_of_it),
        (event + 2, &[0xff; 6][..], not_of_it),
    ] {
        let mut damaged = whole.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, damaged).unwrap();
        let read = read(directory.path());
        assert_eq!(read.events, 10 + 5 + 20, "{what}");
        let said: Vec<_> = read.problems.iter().map(ReadError::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with(&format!("{}, at byte ", path.display())),
            "{said:?}"
        );
        assert!(said[0].ends_with(what), "{said:?}");
        assert!(!read.problems[0].is_cut());
    }
    // Damage in a packet's header costs the packets after it.
    let packet = ends[1] as usize;
    for (at, bytes, what) in [
        (0, &[0][..], "there is no packet"),
        (4, &[0; 16][..], "a packet of another trace"),
        (20, &[9][..], "a packet of a stream that is not declared"),
        (32, &[0; 8][..], "a packet of the time before"),
        (40, &[0; 8][..], "a packet of the time before"),
        (48, &[0; 8][..], "a packet of an impossible size"),
        (48, &[1][..], "a packet of an impossible size"),
        (48, &[0xf8; 8][..], "a packet of an impossible size"),
        (56, &[0; 8][..], "a packet of an impossible size"),
    ] {
        let mut damaged = whole.clone();
        damaged[packet + at..][..bytes.len()].copy_from_slice(bytes);
        fs::write(&path, damaged).unwrap();
        let read = read(directory.path());
        let said: Vec<_> = read.problems.iter().map(ReadError::to_string).collect();
        assert_eq!(
            said,
            [format!("{}, at byte {packet}: {what}", path.display())]
        );
        assert_eq!(read.events, 20, "{what}");
    }
    let mut damaged = whole.clone();
    damaged[packet + 32..][..16].fill(0xff);
    fs::write(&path, damaged).unwrap();
    let of_no_time = read(directory.path());
    assert_eq!(of_no_time.events, 20);
    let said = of_no_time.problems[0].to_string();
    assert!(said.contains("a time beyond what can be said"), "{said}");
    // An event that extends beyond its packet.
    let mut damaged = whole.clone();
    let bits = (ends[1] - ends[0] - 1) * 8;
    damaged[ends[0] as usize + 48..][..8].copy_from_slice(&bits.to_ne_bytes());
    fs::write(&path, damaged).unwrap();
    let read = read(directory.path());
    assert_eq!(read.events, 39);
    assert!(
        read.problems[0]
            .to_string()
            .contains("goes beyond the end of its packet")
    );
}

#[test]
fn metadata_of_others_are_refused_by_line() {
    let directory = tempfile::tempdir().unwrap();
    simple(directory.path(), "t", 1);
    let path = directory.path().join("t/metadata");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, what) in [
        (
            "/* CTF 1.8 */",
            "/* CTF 2 */",
            "line 1: it does not begin with",
        ),
        (
            "minor = 8",
            "minor = 9",
            "line 10: a version other than 1.8",
        ),
        (
            "byte_order = le",
            "byte_order = be",
            "line 12: the byte order of another machine",
        ),
        (
            "uint32_t magic",
            "uint64_t magic",
            "line 14: a header other than of magic, uuid",
        ),
        (
            "ltt_event_id_t id",
            "uint16_t id",
            "a header other than of id, timestamp",
        ),
        ("string", "strange", ""),
        ("align = 64", "align = 32", "an alignment of 32"),
        ("size = 48", "size = 40", "an integer of 40 bits"),
        ("base = 10", "base = 8", "an integer of base 8"),
        (
            "size = 64; align = 8; signed = false; base",
            "size = 63; align = 8; base",
            "an integer of 63 bits",
        ),
        (
            "align = 8; signed = false; base",
            "align = 1; base",
            "an alignment of 1",
        ),
        ("freq = 1000000000", "freq = 0", "a clock that does not run"),
        (
            "stream_id = 0;\n\tlog",
            "stream_id = 5;\n\tlog",
            "an event of stream 5, which is not declared",
        ),
        ("_n;", "_n[];", "unexpected ']'"),
        ("_n;", "_n[0];", "_n is an array of a strange length"),
        (
            "_n;",
            "_n[_x];",
            "_n is a sequence without its length before it",
        ),
        ("loglevel", "colour", "unknown colour"),
    ] {
        let changed = text.replace(from, to);
        fs::write(&path, &changed).unwrap();
        let read = read(directory.path());
        let said: Vec<_> = read.problems.iter().map(ReadError::to_string).collect();
        if changed == text {
            assert!(said.is_empty() && what.is_empty(), "{from}");
            continue;
        }
        assert_eq!(said.len(), 1, "{said:?}");
        let is_said = said[0].contains(what) && said[0].contains("babeltrace2 reads other traces");
        assert!(is_said && said[0].contains("t/metadata, line "), "{said:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Reading ends, whatever the files contain, and reports what it cannot understand.
    ///
    /// Requirements: F4
    #[test]
    fn arbitrary_files_end_reading_with_a_report(
        process in processes(),
        flips in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u8>()), 1..6),
        in_metadata in 0..3u8,
    ) {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 1, &process);
        let trace = directory.path().join("p-1");
        let mut files: Vec<_> = fs::read_dir(&trace).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        if in_metadata == 0 {
            files = vec![trace.join("metadata")];
        }
        let before = read(directory.path());
        for (file, place, to) in flips {
            let path = &files[(file % files.len() as u64) as usize];
            let mut bytes = fs::read(path).unwrap();
            if !bytes.is_empty() {
                let at = place as usize % bytes.len();
                bytes[at] ^= to | 1;
                fs::write(path, bytes).unwrap();
            }
        }
        let read = read(directory.path());
        // An event takes at least 10 bytes of a file, which limits the number of events.
        let room: u64 = files.iter().map(|file| fs::metadata(file).unwrap().len() / 10).sum();
        prop_assert!(in_metadata == 0 || read.events <= room.max(before.events));
    }
}

/// Writes traces of three processes with three kinds of events.
fn write_three_processes(directory: &Path) {
    for pid in 1..4u32 {
        let (mut trace, mut stream) = simple(directory, &format!("t{pid}"), pid);
        trace.declare(&event("2 shop:order-paid 6 u64 n")).unwrap();
        trace.declare(&event("3 shop:tick 6 u64 n")).unwrap();
        for n in 0..300u64 {
            let (id, time) = ((1 + n % 3) as u16, 1_000_000 + 10 * n + u64::from(pid));
            stream.event(id, time, &[], &n.to_ne_bytes()).unwrap();
            if n % 50 == 49 {
                stream.flush().unwrap();
            }
        }
        stream.finish().unwrap();
    }
}

/// Asserts that a selection has those of `all` lines that satisfy `is`, which gets a line and its
/// number. Times since the line before differ.
fn assert_selected(
    directory: &Path,
    all: &[String],
    selection: Selection,
    is: &dyn Fn(&str, u64) -> bool,
) {
    let without_delta = |line: &String| {
        let (time, rest) = line.split_once(" (").unwrap();
        format!("{time}{}", rest.split_once(')').unwrap().1)
    };
    let got: Vec<_> = select(directory, selection).lines();
    let number = |line: &String| {
        line.rsplit_once("n = ")
            .unwrap()
            .1
            .trim_end_matches(" }")
            .parse()
    };
    let wanted = all.iter().filter(|line| is(line, number(line).unwrap()));
    let wanted: Vec<_> = wanted.map(without_delta).collect();
    assert!(!wanted.is_empty());
    assert!(got[0].contains("(+?.?????????)"));
    assert_eq!(got.iter().map(without_delta).collect::<Vec<_>>(), wanted);
}

/// A selection limits events, processes and times.
#[test]
fn selection_limits_events_processes_and_times() {
    let directory = tempfile::tempdir().unwrap();
    write_three_processes(directory.path());
    let all = read(directory.path()).lines();
    assert_eq!(all.len(), 900);
    let expect = |selection, is: &dyn Fn(&str, u64) -> bool| {
        assert_selected(directory.path(), &all, selection, is);
    };
    for (patterns, is) in [
        (
            &["shop:*"][..],
            (|line| line.contains(" shop:")) as fn(&str) -> bool,
        ),
        (&["shop:*", "!tick"], |line| line.contains("order-paid")),
        (&["!shop:tick"], |line| !line.contains(":tick")),
        (&["e", "t?ck"], |line| {
            line.contains(" t:e") || line.contains("tick")
        }),
    ] {
        let events = Some(Patterns::new(patterns).unwrap());
        let selection = Selection {
            events,
            ..Selection::default()
        };
        expect(selection, &|line, _| is(line));
    }
    let selection = Selection {
        pids: vec![3, 1, 9],
        ..Selection::default()
    };
    expect(selection, &|line, _| !line.contains(":(2) "));
    let selection = Selection {
        names: vec!["nobody".into(), "t2".into()],
        pids: vec![9],
        ..Selection::default()
    };
    expect(selection, &|line, _| line.contains(":(2) "));
    // The clock was at 1000000 at START. Event 123 of process 2 is 2 ns after the round time.
    let (from, to) = (START + 1230 + 2, START + 2000 + 2);
    let selection = Selection {
        from: Some(from),
        ..Selection::default()
    };
    expect(selection, &|line, n| {
        n > 123 || n == 123 && !line.contains(":(1) ")
    });
    let selection = Selection {
        from: Some(from),
        to: Some(to),
        ..Selection::default()
    };
    expect(selection, &|line, n| {
        (n > 123 || n == 123 && !line.contains(":(1) "))
            && (n < 200 || n == 200 && !line.contains(":(3) "))
    });
    for bad in ["", "a b", "!", "a/b"] {
        assert!(Patterns::new(&[bad]).unwrap_err().to_string().contains(bad));
    }
}

/// More streams than a process may open, and more than fit into memory at once.
///
/// Requirements: E8
#[test]
fn thousands_of_streams_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, _) = simple(directory.path(), "t", 1);
    let channel = StreamChannel::new("many", 2);
    for n in 0..3000u64 {
        let mut stream = trace.stream(&channel, StreamOwner::Cpu(n as u32)).unwrap();
        for event in 0..3u64 {
            let time = 1_000_000 + (n * 7919) % 3000 + 2000 * event;
            stream.event(1, time, &[], &time.to_ne_bytes()).unwrap();
        }
        stream.finish().unwrap();
    }
    let read = read(directory.path());
    assert!(read.problems.is_empty(), "{:?}", read.problems[0]);
    let number = |line: &String| {
        line.rsplit_once("n = ")
            .unwrap()
            .1
            .trim_end_matches(" }")
            .parse::<u64>()
    };
    let numbers: Vec<_> = read
        .lines()
        .iter()
        .map(|line| number(line).unwrap())
        .collect();
    assert_eq!(numbers.len(), 9000);
    assert!(numbers.is_sorted());
}

/// Packets, streams, declarations and traces that appear while reading are read, complete ones
/// only.
///
/// Requirements: E8
#[test]
fn growing_traces_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = Reader::follow(&[directory.path().to_owned()], Selection::default()).unwrap();
    let (mut read, mut printer) = (Read::default(), Printer::new());
    let mut look = |reader: &mut Reader| {
        reader.refresh();
        read.take(reader, &mut printer);
        assert!(read.problems.is_empty(), "{:?}", read.problems);
        assert_eq!((read.lost, read.lost_packets), (0, 0));
        let lines = read.lines();
        read.text.clear();
        lines
    };
    assert!(look(&mut reader).is_empty());
    let (mut first, mut stream) = simple(directory.path(), "first", 1);
    assert!(look(&mut reader).is_empty());
    for round in 1..10u64 {
        stream
            .event(1, 1_000_000 + 10 * round, &[], &round.to_ne_bytes())
            .unwrap();
        assert!(look(&mut reader).is_empty());
        stream.flush().unwrap();
        let lines = look(&mut reader);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].ends_with(&format!("{{ n = {round} }}")),
            "{lines:?}"
        );
        assert_eq!(lines[0].contains("(+?"), round == 1);
        assert_eq!(lines[0].contains("(+0.000000010)"), round > 1, "{lines:?}");
    }
    // A new event in another stream, with an earlier time: it is late.
    first.declare(&event("2 t:late 6 u8 x")).unwrap();
    let channel = StreamChannel::new("main", 1);
    let mut second = first.stream(&channel, StreamOwner::Cpu(1)).unwrap();
    second.event(2, 1_000_075, &[], &[7]).unwrap();
    second.flush().unwrap();
    let lines = look(&mut reader);
    assert!(
        lines[0].ends_with("(-0.000000015) first:(1) t:late: { cpu_id = 1 }, { x = 7 }"),
        "{lines:?}"
    );
    // Another process; events of the same packets are sorted by time.
    let (_trace, mut third) = simple(directory.path(), "third", 3);
    for n in 0..6u64 {
        let stream = [&mut stream, &mut second, &mut third][n as usize % 3].event(
            1,
            1_000_200 + n,
            &[],
            &n.to_ne_bytes(),
        );
        stream.unwrap();
    }
    for stream in [&mut third, &mut second, &mut stream] {
        stream.flush().unwrap();
    }
    let lines = look(&mut reader);
    let ends: Vec<_> = lines
        .iter()
        .map(|line| line.rsplit_once("n = ").unwrap().1)
        .collect();
    assert_eq!(ends, ["0 }", "1 }", "2 }", "3 }", "4 }", "5 }"]);
    // Half a packet is ignored until the end.
    let path = directory.path().join("third/main_0");
    let bytes = fs::read(&path).unwrap();
    let half = [&bytes[..], &bytes[..50]].concat();
    fs::write(&path, half).unwrap();
    assert!(look(&mut reader).is_empty());
    reader.finish();
    read.take(&mut reader, &mut printer);
    let problem = read.problems.pop().unwrap();
    assert!(problem.is_cut() && read.problems.is_empty(), "{problem}");
    assert_eq!(read.events, 9 + 1 + 6);
}

/// An unreadable file is reported, and costs no other file.
///
/// Requirements: F4
#[test]
fn a_file_that_is_not_there_takes_no_other_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let whole = four_packets(directory.path()).0;
    let expected = read(directory.path());
    assert!(expected.events > 0 && expected.problems.is_empty());
    let link = whole.with_file_name("main_1");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let now = read(directory.path());
    assert_eq!(now.text, expected.text);
    let said: Vec<_> = now.problems.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("main_1") && said[0].contains("No such file"),
        "{said:?}"
    );
    assert!(!now.problems[0].is_cut());
}

/// A stream deleted while it is read is reported once, and costs no other stream.
///
/// Requirements: F4
#[test]
fn deleted_stream_takes_no_other_with_it() {
    let directory = tempfile::tempdir().unwrap();
    drop(four_packets(directory.path()));
    let expected = read(directory.path());
    // Large enough not to be in memory at once.
    let (trace, _) = simple(directory.path(), "u", 2);
    let mut stream = trace
        .stream(&StreamChannel::new("more", 2), StreamOwner::Cpu(0))
        .unwrap();
    for n in 0..100_000u64 {
        stream.event(1, n, &[], &n.to_ne_bytes()).unwrap();
        if n == 50_000 {
            stream.flush().unwrap();
        }
    }
    stream.finish().unwrap();
    for is_begun in [false, true] {
        let roots = [directory.path().to_owned()];
        let mut reader = Reader::open(&roots, Selection::default()).unwrap();
        let deleted = directory.path().join("u/more_0");
        let kept = fs::read(&deleted).unwrap();
        if is_begun {
            assert!(matches!(reader.next(), Some(Item::Event(_))));
        }
        fs::remove_file(&deleted).unwrap();
        let mut now = Read::default();
        now.take(&mut reader, &mut Printer::new());
        let said: Vec<_> = now.problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("more_0") && said[0].contains("No such file"),
            "{said:?}"
        );
        assert!(now.events >= expected.events && now.events < 100_000);
        let text = String::from_utf8_lossy(&now.text);
        assert_eq!(text.matches(" t:(1) ").count() as u64, expected.events);
        fs::write(&deleted, kept).unwrap();
    }
}

/// For a trace and its copy, each event is there once. The copy may be older than the complete
/// trace.
///
/// Requirements: E8
#[test]
fn copied_trace_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let whole = four_packets(directory.path()).0;
    let expected = read(directory.path());
    let trace = whole.parent().unwrap();
    let copy = directory.path().join("a copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(trace).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let in_copy = copy.join(whole.file_name().unwrap());
    for len in [None, Some(fs::metadata(&whole).unwrap().len() / 2)] {
        if let Some(len) = len {
            let file = fs::File::options().write(true).open(&in_copy).unwrap();
            file.set_len(len).unwrap();
        }
        let now = read(directory.path());
        assert_eq!(now.text, expected.text);
        let said: Vec<_> = now.problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("has the same streams as"), "{said:?}");
        assert!(!now.problems[0].is_damage());
    }
    // A copy that differs.
    let mut bytes = fs::read(&whole).unwrap();
    bytes[100] ^= 1;
    fs::write(&in_copy, bytes).unwrap();
    assert_eq!(read(directory.path()).events, 2 * expected.events);
}

/// Streams without metadata are not ignored silently.
///
/// Requirements: F4
#[test]
fn streams_without_metadata_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let stream = four_packets(directory.path()).0;
    let expected = read(directory.path());
    let alone = directory.path().join("alone");
    fs::create_dir(&alone).unwrap();
    fs::copy(&stream, alone.join("main_0")).unwrap();
    let now = read(directory.path());
    assert_eq!(now.text, expected.text);
    assert!(
        matches!(&now.problems[..], [ReadError::NoMetadata { path }] if *path == alone),
        "{:?}",
        now.problems
    );
    let error = Reader::open(std::slice::from_ref(&alone), Selection::default()).unwrap_err();
    assert!(matches!(error, ReadError::NoMetadata { path } if path == alone));
    // Other files are not streams, and those with other names are not even opened.
    let no_trace = || {
        let error = Reader::open(std::slice::from_ref(&alone), Selection::default()).unwrap_err();
        assert!(matches!(error, ReadError::NoTrace { .. }), "{error}");
    };
    fs::write(alone.join("main_0"), "no stream").unwrap();
    no_trace();
    fs::remove_file(alone.join("main_0")).unwrap();
    for name in ["trace_pipe", "main", "main_0x"] {
        fs::copy(&stream, alone.join(name)).unwrap();
    }
    // Opening a FIFO would wait for a writer.
    nix::unistd::mkfifo(&alone.join("main_1"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    no_trace();
}

/// A trace cannot send control sequences to the reader's terminal.
///
/// Requirements: F4
#[test]
fn control_characters_are_escaped() {
    let directory = tempfile::tempdir().unwrap();
    drop(four_packets(directory.path()));
    let path = directory.path().join("t/metadata");
    let metadata = fs::read_to_string(&path).unwrap();
    let bad = "t:\u{1b}[2J\u{9b}31me";
    fs::write(&path, metadata.replace("t:e", bad)).unwrap();
    let named = directory.path().join("\u{1b}]0;title\u{7}");
    fs::create_dir(&named).unwrap();
    fs::rename(directory.path().join("t"), named.join("t")).unwrap();
    let stream = named.join("t/main_0");
    let len = fs::metadata(&stream).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&stream)
        .unwrap()
        .set_len(len - 1)
        .unwrap();

    for arguments in [&["view"][..], &["export", "--json"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_usertrace"))
            .args(arguments)
            .arg(&named)
            .output()
            .unwrap();
        let [printed, said] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert_eq!(printed.matches("[2J").count(), 39, "{printed}");
        // The end of the stream is missing, and a message has the stream's name.
        assert!(
            said.contains("]0;title") && said.contains("main_0"),
            "{said}"
        );
        for text in [printed, said] {
            let obeyed = |c: char| c.is_control() && c != '\n';
            assert!(!text.contains(obeyed), "{text:?}");
        }
    }
}
