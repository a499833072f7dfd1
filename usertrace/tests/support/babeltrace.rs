//! `babeltrace2`, the judge of what is written.

use std::path::Path;
use std::process::Command;

/// What it prints of a trace, and how many events it says were discarded. Any other warning fails the test.
pub struct Read {
    pub lines: Vec<String>,
    pub discarded: u64,
}

/// Reads all traces below `directory`, merged. It refuses a directory without any, so that is looked at first.
pub fn read(directory: &Path) -> Read {
    if !has_trace(directory) {
        return Read {
            lines: Vec::new(),
            discarded: 0,
        };
    }
    let output = Command::new("babeltrace2")
        .arg("--clock-seconds")
        .arg(directory)
        .output()
        .expect("babeltrace2 (Debian package babeltrace2) must be installed to run this test");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    let mut discarded = 0;
    for line in stderr.lines().filter(|line| !line.is_empty()) {
        let count = line
            .split_once("WARNING: Tracer discarded ")
            .and_then(|(_, rest)| rest.split_once(" event"))
            .and_then(|(count, _)| count.parse::<u64>().ok());
        discarded += count.unwrap_or_else(|| panic!("babeltrace2 warns: {line}"));
    }
    Read {
        lines: String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect(),
        discarded,
    }
}

fn has_trace(directory: &Path) -> bool {
    directory.join("metadata").exists()
        || std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .any(|path| path.is_dir() && has_trace(&path))
}
