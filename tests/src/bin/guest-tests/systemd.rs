//! The unit of the daemon, under a real systemd (C5, F1).

use std::fs;
use std::process::Command;

use usertrace_testing::babeltrace::{self, Printed};
use usertrace_tests::{SYSTEMD, program};
use usertrace_vm::repository;

use crate::{Case, cases};

pub(crate) const ON_ONE_KERNEL: &[Case] =
    cases![systemd_starts_restarts_rotates_and_stops_the_daemon];

/// Killed, it is there again at once, and nothing that was written meanwhile is lost.
///
/// Requirements: C5, F1
fn systemd_starts_restarts_rotates_and_stops_the_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c"])
        .arg(format!("{SYSTEMD}{}", include_str!("systemd.sh")))
        .arg("systemd.sh")
        .arg(repository().join("packaging/systemd"))
        .args([program::path("usertrace"), program::path("numbered")])
        .arg(directory.path())
        .output()
        .expect("it runs");
    let log = fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}\n{log}");
    for line in [
        "first: NRestarts=0",
        "killed: NRestarts=1",
        "stopped: Result=success",
    ] {
        assert!(
            said.lines().any(|said| said == line),
            "{line}: {said}\n{log}"
        );
    }
    let traces = directory.path().join("traces");
    let chunks = fs::read_dir(&traces).expect("chunks").filter(|entry| {
        let name = entry.as_ref().expect("an entry").file_name();
        !name.as_encoded_bytes().starts_with(b".")
    });
    assert!(chunks.count() >= 2, "it was told to rotate");
    let read = babeltrace::read(&traces);
    assert_eq!(read.discarded, 0);
    let mut numbers: Vec<_> = read.events.iter().map(Printed::numbered).collect();
    numbers.sort_unstable();
    let expected = (0..1000).flat_map(|number| [(0, number); 4]);
    assert!(numbers.into_iter().eq(expected));
}
