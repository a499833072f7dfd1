//! CTF 2 and CTF 1.8 are equivalent: `babeltrace2` 2.1 prints the same of the one as 2.0 of the
//! other, and so does this reader (F1, E6, E7, E8, B1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use usertrace_ctf::{StreamChannel, StreamOwner, StreamWriter, TraceWriter, Version};
use usertrace_reader::{Item, Printer, ReadError, Reader, Selection};
use usertrace_sys::Scope;

use usertrace_testing::processes::{Process, clock, clock_at, event, info, processes, write_as};

const BOTH: [Version; 2] = [Version::V1_8, Version::V2];

/// Both outputs of a `babeltrace2`, without differences between 2.0 and 2.1 in line ends, and
/// without file names.
fn printed(mut command: Command, arguments: &[&str], directory: &Path) -> (String, Vec<String>) {
    command.args(arguments).arg(directory).env("TZ", "UTC");
    let output = command
        .output()
        .expect("babeltrace2 (Debian package babeltrace2) must be installed to run this test");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    let said = stderr.lines().filter(|line| !line.is_empty());
    let said = said.map(|line| {
        // All but the number of lost packets depends on the trace: UUID, times, class and stream.
        let (_, what) = line
            .split_once("WARNING: Tracer discarded ")
            .unwrap_or_else(|| panic!("it warns: {line}"));
        what.split(" in trace ").next().unwrap().to_owned()
    });
    let said = said.collect();
    let stdout = usertrace_testing::babeltrace::escaped(&output.stdout);
    (String::from_utf8_lossy(&stdout).into_owned(), said)
}

fn old(arguments: &[&str], directory: &Path) -> (String, Vec<String>) {
    printed(Command::new("babeltrace2"), arguments, directory)
}

fn new(arguments: &[&str], directory: &Path) -> (String, Vec<String>) {
    printed(usertrace_testing::tools::babeltrace(), arguments, directory)
}

/// The output of `view`, and the losses.
fn view(directory: &Path) -> (String, Vec<String>) {
    let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
    let (mut text, mut lost, mut printer) = (Vec::new(), Vec::new(), Printer::new());
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => printer.event(&mut text, &event),
            Item::Lost(one) => lost.push(format!("{:?} {} {}", one.kind, one.begin, one.end)),
            Item::Error(error) => panic!("{error}"),
        }
    }
    (String::from_utf8_lossy(&text).into_owned(), lost)
}

/// Sorts and unwraps the labels that share a value of an enumeration. 2.1 prints them in braces and
/// in any order.
fn sorted(text: &str) -> String {
    let mut sorted = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("= ( ") {
        let (labels, behind) = behind.split_once(" : container").expect("an enumeration");
        let inner = labels
            .strip_prefix("{ ")
            .and_then(|labels| labels.strip_suffix(" }"));
        let mut labels: Vec<_> = inner.unwrap_or(labels).split(", ").collect();
        labels.sort_unstable();
        sorted += &format!("{before}= ( {} : container", labels.join(", "));
        rest = behind;
    }
    sorted + rest
}

/// Writes the same processes in both versions, below `1` and `2`, with the same UUIDs. All are of
/// one machine. For events of the same time, 2.1 sorts by the traces' names, which begin with the
/// machine's. 2.0 and this reader sort by UUID.
fn write_both(directory: &Path, all: &[Process]) -> [PathBuf; 2] {
    BOTH.map(|version| {
        let path = directory.join(if version == Version::V2 { "2" } else { "1" });
        fs::create_dir(&path).unwrap();
        for (pid, process) in (1u32..).zip(all) {
            let hostname = all[0].hostname.clone();
            let process = &Process {
                hostname,
                ..process.clone()
            };
            write_as(&path, pid, process, version, Some([pid as u8; 16]));
        }
        path
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// All types of fields with any bytes, contexts, scopes, losses, and clocks of any offset and
    /// frequency.
    ///
    /// Requirements: F1
    #[test]
    fn ctf_2_is_read_like_ctf_1_8(all in prop::collection::vec(processes(), 1..4)) {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = &write_both(directory.path(), &all);
        let expected = old(&[], one);
        for (name, (text, said)) in [
            ("2.1 reads 2", new(&[], two)),
            ("2.1 reads 1.8", new(&[], one)),
        ] {
            prop_assert_eq!(text.lines().count(), expected.0.lines().count());
            for (line, expected) in sorted(&text).lines().zip(sorted(&expected.0).lines()) {
                prop_assert_eq!(line, expected, "{}", name);
            }
            prop_assert_eq!(&said, &expected.1, "{}", name);
        }
        let (ours, lost) = view(one);
        prop_assert_eq!(&ours, &expected.0);
        prop_assert_eq!(view(two), (ours, lost));
        // Streams are identical.
        for entry in fs::read_dir(one).unwrap() {
            let name = entry.unwrap().file_name();
            for entry in fs::read_dir(one.join(&name)).unwrap() {
                let file = Path::new(&name).join(entry.unwrap().file_name());
                let [a, b] = [one, two].map(|path| fs::read(path.join(&file)).unwrap());
                prop_assert_eq!(a == b, !file.ends_with("metadata"), "{:?}", file);
            }
        }
    }
}

/// Environment, clock, log levels and types, as 2.1 shows them. Parts that only one language has
/// are left out: the precision of a clock, which is 0 in CTF 1.8, and user attributes.
///
/// Requirements: F1
#[test]
fn declarations_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for cycles in [1_000_000, u64::MAX >> 2] {
        let shown = BOTH.map(|version| {
            let path = directory.path().join("t");
            let (info, clock) = (
                info("a \"\\ü\n", 7, Some("h")),
                clock_at(999_999_937, cycles),
            );
            let mut trace = TraceWriter::resume(&path, info, clock, [5; 16], Vec::new()).unwrap();
            trace.set_version(version);
            trace.declare_class(Scope::Thread).unwrap();
            trace.declare_cmdline("./a \"b\" \\ü\n".into()).unwrap();
            for level in 0..17 {
                let line = format!("{} t:e{level} {level} fmt a%20%22%7Bx%7D;u32 x", level + 1);
                trace.declare(&event(&line)).unwrap();
            }
            let of = StreamOwner::Thread {
                ring: 1,
                tid: 8,
                begin: cycles,
            };
            let mut stream = trace.stream(&StreamChannel::new("main", 1), of).unwrap();
            for id in 1..18 {
                stream.event(id, cycles, &[], &[1; 4]).unwrap();
            }
            stream.finish().unwrap();
            let (text, _) = new(&["-c", "sink.text.details"], &path);
            fs::remove_dir_all(&path).unwrap();
            text
        });
        let [one, two] = shown.each_ref().map(|text| {
            let lines = text.lines().filter(|line| {
                let line = line.trim();
                !line.starts_with("Precision (cycles)")
                    && !line.starts_with("User attributes")
                    && line != "usertrace:"
                    && !line.starts_with("format: a \"{x}")
            });
            lines.collect::<Vec<_>>()
        });
        assert!(shown[1].contains("format: a \"{x}"), "{}", shown[1]);
        assert_eq!(
            one.iter()
                .filter(|line| line.contains("Log level: "))
                .count(),
            15
        );
        assert_eq!(one, two);
        let text = [
            "procname: a \"\\ü\u{fffd}",
            "cmdline: ./a \"b\" \\ü\u{fffd}",
            "Frequency (Hz): 999,999,937",
            "hostname: h",
        ];
        assert!(
            text.iter().all(|text| shown[1].contains(text)),
            "{}",
            shown[1]
        );
    }
}

/// Rewrites metadata as if `lttng-modules` had written them, with a clock of its own.
fn make_kernel_metadata(metadata: &Path) {
    let mut text = fs::read_to_string(metadata).unwrap();
    for (from, to) in [
        ("domain = \"ust\"", "domain = \"kernel\""),
        (
            "tracer_name = \"usertrace\"",
            "tracer_name = \"lttng-modules\"",
        ),
        (
            "tracer_major = 0;\n\ttracer_minor = 1",
            "tracer_major = 2;\n\ttracer_minor = 13",
        ),
        (
            "name = \"ltt\";",
            "name = \"monotonic\";\n\tuuid = \"b9e0a45c-8d3c-4f0e-9d5a-1d1f2f9f5a10\";",
        ),
        ("\tabsolute = true;\n", ""),
        ("clock.ltt.value", "clock.monotonic.value"),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    fs::write(metadata, text).unwrap();
}

/// Events line up with those of a kernel's trace with another clock: that of `lttng-modules` counts
/// nanoseconds since boot, with an offset to 1970.
///
/// Requirements: F1, F9
#[test]
fn events_line_up_with_a_kernel_trace() {
    for version in BOTH {
        let directory = tempfile::tempdir().unwrap();
        // Both traces cover the same time. Of each 4 ns, our events are at 0, 4, ..., the kernel's
        // at 2, 6, ...
        for (name, freq, cycles, first) in [
            ("ours", 2_500_000_000, 1_000_000, 0),
            ("kernel", 1_000_000_000, 77_000, 2),
        ] {
            let is_kernel = name == "kernel";
            let path = directory.path().join(name);
            let clock = clock_at(freq, cycles);
            let mut trace = TraceWriter::resume(
                &path,
                info(name, 1, None),
                clock,
                [first as u8; 16],
                Vec::new(),
            )
            .unwrap();
            if !is_kernel {
                trace.set_version(version);
            }
            trace.declare_class(Scope::Cpu).unwrap();
            trace
                .declare(&event(&format!("1 t:{name} 6 u64 n")))
                .unwrap();
            let mut stream = trace
                .stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0))
                .unwrap();
            for n in 0..50u64 {
                let ns = first + 4 * n;
                stream
                    .event(1, cycles + ns * freq / 1_000_000_000, &[], &n.to_ne_bytes())
                    .unwrap();
            }
            stream.finish().unwrap();
            if is_kernel {
                make_kernel_metadata(&path.join("metadata"));
            }
        }
        let mut read = vec![new(&["--clock-seconds"], directory.path())];
        if version == Version::V1_8 {
            read.push(old(&["--clock-seconds"], directory.path()));
        }
        for (text, said) in read {
            assert!(said.is_empty(), "{said:?}");
            let events: Vec<_> = text
                .lines()
                .map(|line| {
                    let time = &line[..line.find(']').unwrap()];
                    let name = line.split_once(" t:").unwrap().1.split(':').next().unwrap();
                    format!("{} {name}", time.trim_start_matches("[1700000000."))
                })
                .collect();
            let expected: Vec<_> = (0..100)
                .map(|n| format!("{:09} {}", 2 * n, ["ours", "kernel"][n % 2]))
                .collect();
            assert_eq!(events, expected);
        }
    }
}

/// A trace in CTF 2 of the event `t:e`, which has a number, and the path of its metadata.
fn simple(directory: &Path) -> (TraceWriter, StreamWriter, PathBuf) {
    let path = directory.join("t");
    let mut trace = TraceWriter::create(&path, info("p", 1, None), clock(1_000_000_000)).unwrap();
    trace.set_version(Version::V2);
    trace.declare_class(Scope::Cpu).unwrap();
    trace.declare(&event("1 t:e 6 u64 n")).unwrap();
    let stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0));
    (trace, stream.unwrap(), path.join("metadata"))
}

/// All problems of reading the traces, and the number of events.
fn read(directory: &Path) -> (Vec<ReadError>, u64) {
    let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
    let (mut problems, mut events) = (Vec::new(), 0);
    while let Some(item) = reader.next() {
        match item {
            Item::Event(_) => events += 1,
            Item::Error(error) => problems.push(error),
            Item::Lost(_) => {}
        }
    }
    (problems, events)
}

/// Declarations come while events are recorded, and the reader reads the present state each time.
///
/// Requirements: E6
#[test]
fn metadata_are_appended_to() {
    let directory = tempfile::tempdir().unwrap();
    let (mut trace, mut stream, metadata) = simple(directory.path());
    let mut before = fs::read(&metadata).unwrap();
    for n in 2..8u16 {
        let line =
            format!("{n} t:e{n} {n} u64 n;u16{{a=1}} e;str[] s").replace(";str[] s", ";c8[] s");
        trace.declare(&event(&line)).unwrap();
        let payload = [&u64::from(n).to_ne_bytes()[..], &[1, 0, 1, 0, 0, 0, b'x']].concat();
        stream
            .event(n, 1_000_000 + u64::from(n), &[], &payload)
            .unwrap();
        stream.flush().unwrap();
        let now = fs::read(&metadata).unwrap();
        assert!(now.starts_with(&before) && now.len() > before.len());
        before = now;
        let (text, _) = new(&[], directory.path());
        assert_eq!(text.lines().count(), usize::from(n) - 1);
        let end = format!(
            "t:e{n}: {{ cpu_id = 0 }}, {{ n = {n}, e = ( \"a\" : container = 1 ), _s_length = 1, s = \"x\" }}"
        );
        assert!(text.trim_end().ends_with(&end), "{text}");
        assert_eq!(view(directory.path()).0, text);
    }
}

/// A half-written end of the metadata, left by a killed writer, is skipped.
///
/// Requirements: A10
#[test]
fn the_end_of_metadata_may_be_missing() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut stream, metadata) = simple(directory.path());
    stream.event(1, 10_000_000, &[], &[0; 8]).unwrap();
    stream.finish().unwrap();
    let text = fs::read_to_string(&metadata).unwrap();
    let class = text.find("\u{1e}{\"type\":\"data-stream-class").unwrap();
    let event = text.find("\u{1e}{\"type\":\"event-record-class").unwrap();
    for len in 0..=text.len() {
        fs::write(&metadata, &text.as_bytes()[..len]).unwrap();
        let (problems, events) = read(directory.path());
        assert_eq!(events, u64::from(len == text.len()), "{len}");
        let ends = problems.iter().filter(|problem| problem.is_cut()).count();
        if class < len && len < text.len() && len != event {
            assert_eq!((ends, problems.len()), (1, 2), "{len}: {problems:?}");
        }
    }
}

/// Changes to metadata, and what the reader says of each.
const REFUSED: [(&str, &str, &str); 24] = [
    ("\"version\":2", "\"version\":3", "line 1: version 3 of CTF"),
    (
        "preamble",
        "postamble",
        "line 1: unknown variant `postamble`",
    ),
    ("{\"type\":\"preamble", "[\"", "line 1: "),
    (
        "\"uid\":\"",
        "\"uid\":\"0",
        "line 2: the trace is called \"0",
    ),
    (
        "packet-magic-number",
        "data-stream-id",
        "line 2: a header other than of magic, uuid",
    ),
    (
        "\"length\":16,\"roles",
        "\"length\":17,\"roles",
        "line 2: a header other than of magic",
    ),
    ("unix-epoch", "boot", "line 3: a clock of origin \"boot\""),
    (
        "\"frequency\":1000000000",
        "\"frequency\":0",
        "line 3: a clock that does not run",
    ),
    (
        "\"default-clock-class-id\":\"ltt\"",
        "\"default-clock-class-id\":\"x\"",
        "line 4: unknown clock \"x\"",
    ),
    (
        "\"name\":\"timestamp\"",
        "\"name\":\"time\"",
        "line 4: a header other than of id, timestamp",
    ),
    (
        "\"data-stream-class-id\":0",
        "\"data-stream-class-id\":5",
        "line 5: an event of stream 5, which is not declared",
    ),
    (
        "\"id\":2,\"name",
        "\"id\":1,\"name",
        "event id 1 is declared twice",
    ),
    ("\"info\"", "\"loud\"", "line 5: log level \"loud\""),
    (
        "big-endian",
        "middle-endian",
        "line 6: e is of byte order \"middle-endian\"",
    ),
    (
        "\"length\":16,\"byte-order\":\"big",
        "\"length\":15,\"byte-order\":\"big",
        "line 6: e is a number of 15 bits",
    ),
    (
        "\"big-endian\",\"alignment\":8",
        "\"big-endian\",\"alignment\":1",
        "line 6: e is aligned to 1 bits",
    ),
    (
        "\"path\":[\"_c_length\"]",
        "\"path\":[\"e\"]",
        "line 6: c is a sequence without its length before it",
    ),
    (
        "\"origin\":\"event-record-payload\"",
        "\"origin\":\"packet-header\"",
        "line 6: c is as long as something elsewhere says",
    ),
    (
        "array\",\"length\":3",
        "array\",\"length\":0",
        "line 6: a is an array of a strange length",
    ),
    (
        "[[1,1]]",
        "[[2,1]]",
        "line 6: l is labelled \"x\" for nothing",
    ),
    ("[[1,1]]", "[[1,18446744073709551615]]", "line 6: "),
    (
        "null-terminated-string",
        "optional",
        "line 6: unknown variant `optional`",
    ),
    (
        "\"type\":\"null-terminated-string\"",
        "\"type\":\"null-terminated-string\",\"colour\":1",
        "line 6: unknown field `colour`",
    ),
    ("\u{1e}", "\n", "it does not begin with /* CTF 1.8 */"),
];

#[test]
fn metadata_of_others_are_refused_by_line() {
    let directory = tempfile::tempdir().unwrap();
    let (mut trace, _, metadata) = simple(directory.path());
    let fields = "s16be e;c8[] c;u8[3] a;f32 f;str s;s8{x=1} l";
    trace.declare(&event(&format!("2 t:f 6 {fields}"))).unwrap();
    let text = fs::read_to_string(&metadata).unwrap();
    for (from, to, what) in REFUSED {
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        fs::write(&metadata, &changed).unwrap();
        let said: Vec<_> = read(directory.path())
            .0
            .iter()
            .map(ReadError::to_string)
            .collect();
        assert_eq!(said.len(), 1, "{from}: {said:?}");
        let is_said = said[0].contains(what) && said[0].contains("babeltrace2 reads other traces");
        assert!(
            is_said && said[0].contains("t/metadata, line "),
            "{from}: {said:?}"
        );
    }
    fs::write(&metadata, text).unwrap();
    assert!(read(directory.path()).0.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Reading ends, whatever the metadata contain.
    ///
    /// Requirements: F4
    #[test]
    fn no_metadata_are_too_strange(
        process in processes(),
        flips in prop::collection::vec((any::<u64>(), any::<u8>()), 1..6),
        is_digit in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        write_as(directory.path(), 1, &process, Version::V2, None);
        let path = directory.path().join("p-1/metadata");
        let mut bytes = fs::read(&path).unwrap();
        // Include changes that leave valid JSON.
        let digits: Vec<_> = (0..bytes.len()).filter(|&at| !is_digit || bytes[at].is_ascii_digit()).collect();
        for (place, to) in flips {
            let at = digits[place as usize % digits.len()];
            bytes[at] = if is_digit { b'0' + to % 10 } else { bytes[at] ^ (to | 1) };
        }
        fs::write(path, bytes).unwrap();
        read(directory.path());
    }
}
