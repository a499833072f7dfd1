//! The tests.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::kill::{Done, End, run_up_to};
use crate::recorder::DIRECTORY;
use crate::support::babeltrace;

pub(crate) const ALL: [(&str, fn()); 2] = [
    ("killed_once_at_each_write", killed_once_at_each_write),
    ("killed_again_and_again", killed_again_and_again),
];

fn recorder(directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(DIRECTORY, directory);
    command
}

/// A directory for a recorder.
fn new() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("out")).unwrap();
    directory
}

/// What is in the traces.
#[derive(Debug, PartialEq)]
struct Contents {
    events: Vec<String>,
    discarded: u64,
    discarded_packets: u64,
    /// The files, and how long they are.
    files: BTreeMap<String, u64>,
}

fn contents(directory: &Path) -> Contents {
    let output = directory.join("out");
    let read = babeltrace::read(&output);
    let mut files = BTreeMap::new();
    for process in fs::read_dir(&output).unwrap() {
        let process = process.unwrap();
        for file in fs::read_dir(process.path()).unwrap() {
            let file = file.unwrap();
            let name = format!("{:?}/{:?}", process.file_name(), file.file_name());
            // As long as the clock is well known.
            let is_metadata = file.file_name() == "metadata";
            let len = file.metadata().unwrap().len();
            files.insert(name, if is_metadata { 0 } else { len });
        }
    }
    // Without the time, which depends on the clock by less than a nanosecond.
    let lines = read.lines.iter();
    let mut events: Vec<_> = lines
        .map(|line| line.split_once("prog:").unwrap().1.to_owned())
        .collect();
    events.sort();
    Contents {
        events,
        discarded: read.discarded,
        discarded_packets: read.discarded_packets,
        files,
    }
}

/// A recorder that is not killed.
fn finish(directory: &Path, what: &str) -> Contents {
    let status = recorder(directory).status().unwrap();
    assert!(status.success(), "{what}: {status}");
    contents(directory)
}

fn undisturbed() -> Contents {
    let directory = new();
    let contents = finish(directory.path(), "undisturbed");
    assert!(contents.events.len() > 3000, "{}", contents.events.len());
    assert!(contents.discarded > 1 && contents.discarded_packets > 1);
    // Without notes, and with all kinds of streams.
    assert!(
        contents
            .files
            .keys()
            .all(|name| name.starts_with("\"prog-"))
    );
    assert!(contents.files.len() > 12, "{:?}", contents.files);
    contents
}

fn same(got: &Contents, want: &Contents, what: &str) {
    let is_there: HashSet<_> = got.events.iter().collect();
    let missing = want.events.iter().filter(|event| !is_there.contains(event));
    assert_eq!(missing.count(), 0, "{what}: events are missing");
    assert_eq!(
        got.events.len(),
        want.events.len(),
        "{what}: events are there twice"
    );
    let counts = |of: &Contents| (of.discarded, of.discarded_packets);
    assert_eq!(counts(got), counts(want), "{what}");
    assert_eq!(got.files, want.files, "{what}");
}

fn killed_once_at_each_write() {
    let want = undisturbed();
    let mut last = 1;
    loop {
        for done in [Done::Half, Done::All] {
            let directory = new();
            let what = format!("killed at its write {last}, done: {done:?}");
            if run_up_to(recorder(directory.path()), last, done) != End::Killed {
                assert!(last > 100, "there are but {last} writes");
                return;
            }
            same(&finish(directory.path(), &what), &want, &what);
        }
        last += 1;
    }
}

/// Also while it looks for where it was.
fn killed_again_and_again() {
    let want = undisturbed();
    for (every, done) in [
        (9, Done::Half),
        (14, Done::Half),
        (23, Done::All),
        (41, Done::Half),
    ] {
        let directory = new();
        let mut kills = 0;
        // Something is done each time, so it comes to an end.
        while run_up_to(recorder(directory.path()), every + kills, done) == End::Killed {
            kills += 1;
        }
        assert!(kills > 2, "{every}");
        let what = format!("killed {kills} times");
        same(&contents(directory.path()), &want, &what);
    }
}
