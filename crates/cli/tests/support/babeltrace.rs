//! `babeltrace2`, the judge of what is written.

use std::path::Path;
use std::process::Command;

/// What it prints of a trace, and how many events and packets it says were discarded. Any other warning fails the test.
pub struct Read {
    pub lines: Vec<String>,
    pub discarded: u64,
    pub discarded_packets: u64,
}

/// Reads all traces below `directory`, merged. It refuses a directory without any, so that is looked at first.
pub fn read(directory: &Path) -> Read {
    if !has_trace(directory) {
        return Read {
            lines: Vec::new(),
            discarded: 0,
            discarded_packets: 0,
        };
    }
    let output = Command::new("babeltrace2")
        .arg("--clock-seconds")
        .arg(directory)
        .output()
        .expect("babeltrace2 (Debian package babeltrace2) must be installed to run this test");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    let (mut discarded, mut discarded_packets) = (0, 0);
    for line in stderr.lines().filter(|line| !line.is_empty()) {
        let counted = |what| {
            line.split_once("WARNING: Tracer discarded ")
                .and_then(|(_, rest)| rest.split_once(what))
                .and_then(|(count, _)| count.parse::<u64>().ok())
        };
        match (counted(" event"), counted(" packet")) {
            (Some(count), _) => discarded += count,
            (_, Some(count)) => discarded_packets += count,
            _ => panic!("babeltrace2 warns: {line}"),
        }
    }
    Read {
        lines: String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect(),
        discarded,
        discarded_packets,
    }
}

fn has_trace(directory: &Path) -> bool {
    directory.join("metadata").exists()
        || std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .any(|path| path.is_dir() && has_trace(&path))
}
