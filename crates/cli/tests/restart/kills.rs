//! The tests: kills and full disks at each write of a recorder.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::kill::{Done, End, run_full, run_up_to};
use crate::recorder::{DIRECTORY, ROTATES};
use usertrace_testing::babeltrace;

pub(crate) const ALL: [(&str, fn()); 6] = [
    ("killed_once_at_each_write", || {
        killed_once_at_each_write(false)
    }),
    ("killed_once_at_each_write_with_chunks", || {
        killed_once_at_each_write(true)
    }),
    ("killed_again_and_again", || killed_again_and_again(false)),
    ("killed_again_and_again_with_chunks", || {
        killed_again_and_again(true)
    }),
    ("the_disk_is_full_at_each_write", || {
        full_at_each_write(false)
    }),
    ("the_disk_is_full_at_each_write_with_chunks", || {
        full_at_each_write(true)
    }),
];

/// Tests of the full tier. The others try each kind of kill once, one of them with chunks.
pub(crate) const LONG: [&str; 3] = [
    "killed_once_at_each_write",
    "killed_again_and_again_with_chunks",
    "the_disk_is_full_at_each_write_with_chunks",
];

fn recorder(directory: &Path, rotates: bool) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(DIRECTORY, directory);
    if rotates {
        command.env(ROTATES, "");
    }
    command
}

/// Makes a directory for a recorder.
fn new() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("out")).unwrap();
    directory
}

/// The contents of the traces.
#[derive(Debug, PartialEq)]
struct Contents {
    events: Vec<String>,
    discarded: u64,
    discarded_packets: u64,
    /// Files and their lengths.
    files: BTreeMap<String, u64>,
    /// Paths of modules.
    modules: BTreeSet<String>,
}

fn contents(directory: &Path) -> Contents {
    let output = directory.join("out");
    let read = babeltrace::lines(&output);
    let modules = babeltrace::modules(&output).into_iter();
    let modules = modules.filter(|event| event.value("path").is_some());
    let modules = modules.map(|event| event.text("path").to_owned()).collect();
    let mut files = BTreeMap::new();
    let mut todo = vec![(output, String::new())];
    while let Some((directory, name)) = todo.pop() {
        for file in fs::read_dir(directory).unwrap() {
            let file = file.unwrap();
            let of_file = file.file_name().into_string().unwrap();
            // The name of a chunk has its number and a time, which differs.
            let number = of_file.split_once("Z-").map(|(_, number)| number);
            let name = format!("{name}/{}", number.unwrap_or(&of_file));
            if file.file_type().unwrap().is_dir() {
                todo.push((file.path(), name));
                continue;
            }
            // The length of metadata depends on the clock's frequency. Each recorder describes the
            // modules again.
            let is_metadata = of_file == "metadata";
            let has_other_len = is_metadata || of_file == "modules";
            if is_metadata {
                let said = fs::read(file.path()).unwrap();
                let said = String::from_utf8_lossy(&said);
                assert!(said.contains("\"prog -x\""), "{said}");
            }
            let len = file.metadata().unwrap().len();
            files.insert(name, if has_other_len { 0 } else { len });
        }
    }
    // Compare without times, which depend on the clock by less than a nanosecond.
    let lines = read.lines.iter();
    let mut events: Vec<_> = lines
        .map(|line| line.split_once("prog:").unwrap().1.to_owned())
        .collect();
    events.sort();
    Contents {
        modules,
        events,
        discarded: read.discarded,
        discarded_packets: read.discarded_packets,
        files,
    }
}

/// Runs a recorder to its end.
fn finish(directory: &Path, rotates: bool, what: &str) -> Contents {
    let status = recorder(directory, rotates).status().unwrap();
    assert!(status.success(), "{what}: {status}");
    contents(directory)
}

/// The recorder's counts.
fn counts(directory: &Path) -> String {
    fs::read_to_string(directory.join("counts")).unwrap()
}

fn undisturbed(rotates: bool) -> (Contents, String) {
    let directory = new();
    let contents = finish(directory.path(), rotates, "undisturbed");
    assert!(contents.events.len() > 3000, "{}", contents.events.len());
    assert!(contents.discarded > 1 && contents.discarded_packets > 1);
    // No notes are left, and there are streams of all kinds.
    let chunk = |name: &str| name.split_once("/prog-").unwrap().0.to_owned();
    let chunks: BTreeSet<_> = contents.files.keys().map(|name| chunk(name)).collect();
    let all: &[_] = match rotates {
        true => &["/000001", "/000002", "/000003", "/000004"],
        false => &[""],
    };
    assert_eq!(Vec::from_iter(&chunks), Vec::from_iter(all));
    assert!(
        contents.files.len() > 12 + 8 * (all.len() - 1),
        "{:?}",
        contents.files
    );
    let counts = counts(directory.path());
    assert_eq!(counts.lines().count(), 2);
    if rotates {
        // Chunks change only the place of events.
        let (whole, counted) = undisturbed(false);
        assert_eq!(contents.events, whole.events);
        let discarded = |of: &Contents| (of.discarded, of.discarded_packets);
        assert_eq!(discarded(&contents), discarded(&whole));
        assert_eq!(counts, counted);
    }
    (contents, counts)
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

/// Distance between disturbed writes, and the first one. The full tier disturbs each write; other
/// runs disturb a quarter, a different one each time.
fn sample() -> (u32, u32) {
    let step = usertrace_testing::counts::counts(4, 1) as u32;
    (step, std::process::id() % step)
}

fn killed_once_at_each_write(rotates: bool) {
    let (want, _) = undisturbed(rotates);
    let (step, begin) = sample();
    let mut last = 1 + begin;
    loop {
        // With chunks there are twice as many writes, and most are those of the other test. So each
        // is disturbed in one way only.
        let all = [Done::Half, Done::All];
        let turns = match rotates {
            true => &all[last as usize % 2..][..1],
            false => &all[..],
        };
        for &done in turns {
            let directory = new();
            let what = format!("killed at its write {last}, done: {done:?}");
            let recorder = recorder(directory.path(), rotates);
            if run_up_to(recorder, last, done) != End::Killed {
                assert!(last > 100, "there are but {last} writes");
                return;
            }
            same(&finish(directory.path(), rotates, &what), &want, &what);
        }
        last += step;
    }
}

/// Kills the recorder repeatedly, also while it resumes.
fn killed_again_and_again(rotates: bool) {
    let (want, _) = undisturbed(rotates);
    for (every, done) in [
        (9, Done::Half),
        (14, Done::Half),
        (23, Done::All),
        (41, Done::Half),
    ] {
        let directory = new();
        let mut kills = 0;
        let recorder = || recorder(directory.path(), rotates);
        // Each run makes progress, so this ends.
        while run_up_to(recorder(), every + kills, done) == End::Killed {
            kills += 1;
        }
        assert!(kills > 2, "{every}");
        let what = format!("killed {kills} times");
        same(&contents(directory.path()), &want, &what);
    }
}

/// The recorder goes on when the disk has room again: nothing is missing, doubled, or counted
/// twice.
fn full_at_each_write(rotates: bool) {
    let (want, counted) = undisturbed(rotates);
    let (step, begin) = sample();
    // Each write fails in one of the runs.
    for (full, done) in [(2, Done::All), (7, Done::Half)] {
        // The first calls make this test's own file.
        let mut first = 3 + begin * full;
        loop {
            let directory = new();
            let what = format!("full at its write {first}, for {full}, done: {done:?}");
            let recorder = recorder(directory.path(), rotates);
            let Some(status) = run_full(recorder, first, done, full) else {
                assert!(first > 100, "there are but {first} writes");
                break;
            };
            assert_eq!(status, 0, "{what}");
            same(&contents(directory.path()), &want, &what);
            assert_eq!(counts(directory.path()), counted, "{what}");
            first += full * step;
        }
    }
}
