//! `babeltrace2`, the judge of what is written.

use std::path::Path;
use std::process::Command;

/// What it prints of a trace, and how many events it says were discarded. Any other warning fails the test.
pub struct Read {
    pub lines: Vec<String>,
    pub discarded: u64,
}

/// Reads all traces below `directory`, merged.
pub fn read(directory: &Path) -> Read {
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
