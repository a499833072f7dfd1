//! CTF 2 says what CTF 1.8 says: `babeltrace2` 2.1 prints of the one what 2.0 prints of the other, and so do we
//! (F1, E6, E7, E8, B1).

#[path = "support/fields.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod fields;
#[path = "support/processes.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod processes;
#[path = "support/tools.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use more of it")]
mod tools;

use std::fs;
use std::path::Path;
use std::process::Command;

use processes::{Process, clock_at, event, info, processes, write_as};
use proptest::prelude::*;
use usertrace::ctf::{StreamChannel, StreamOf, TraceWriter, Version};
use usertrace::reader::{EnvValue, Item, Printer, Problem, Reader, Selection};
use usertrace::writer::Scope;

const BOTH: [Version; 2] = [Version::V1_8, Version::V2];

/// What a `babeltrace2` prints, on both outputs. 2.0 ends lines of the latter, as 2.1 does, and names of files are not
/// the same.
fn printed(mut command: Command, arguments: &[&str], directory: &Path) -> (String, Vec<String>) {
    command.args(arguments).arg(directory).env("TZ", "UTC");
    let output = command
        .output()
        .expect("babeltrace2 (Debian package babeltrace2) must be installed to run this test");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    let said = stderr.lines().filter(|line| !line.is_empty());
    let said = said.map(|line| {
        // All but the number of packets that nobody has seen is the trace's: UUID, times, class and stream.
        let (_, what) = line
            .split_once("WARNING: Tracer discarded ")
            .unwrap_or_else(|| panic!("it warns: {line}"));
        what.split(" in trace ").next().unwrap().to_owned()
    });
    let said = said.collect();
    (String::from_utf8_lossy(&output.stdout).into_owned(), said)
}

fn old(arguments: &[&str], directory: &Path) -> (String, Vec<String>) {
    printed(Command::new("babeltrace2"), arguments, directory)
}

fn new(arguments: &[&str], directory: &Path) -> (String, Vec<String>) {
    printed(tools::babeltrace(), arguments, directory)
}

/// What `view` prints, and what was lost.
fn view(directory: &Path) -> (String, Vec<String>) {
    let mut reader = Reader::open(&[directory.to_owned()], Selection::default()).unwrap();
    let (mut text, mut lost, mut printer) = (Vec::new(), Vec::new(), Printer::new());
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => printer.event(&mut text, &event),
            Item::Lost(one) => lost.push(format!("{:?} {} {}", one.what, one.begin, one.end)),
            Item::Problem(problem) => panic!("{problem}"),
        }
    }
    (String::from_utf8_lossy(&text).into_owned(), lost)
}

/// Names of an enumeration that share a value are in braces in 2.1, whatever it reads, and in no order: they are put into
/// one, without.
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

/// The same processes in both versions, below `1` and `2`, with the same UUIDs. All are of one machine: of events of the same
/// time 2.1 prints those first whose trace has the lower name, which begins with the machine's, whatever it reads, and 2.0
/// and we those whose trace has the lower UUID.
fn write_both(directory: &Path, all: &[Process]) -> [std::path::PathBuf; 2] {
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

    /// All types of fields with any bytes, contexts, scopes, losses, and clocks of any offset and frequency.
    #[test]
    fn f1_ctf_2_is_read_as_ctf_1_8(all in prop::collection::vec(processes(), 1..4)) {
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
        // Streams are the same, to the byte.
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
