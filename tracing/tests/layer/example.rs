//! The example `shop` on the fallback, read by `babeltrace2`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

use usertrace_testing::{babeltrace, shop};

/// The example, which `cargo test` builds beside the tests unless it is told which targets to test.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.ancestors().nth(2).expect("PROFILE/deps/TEST");
    let path = profile.join("examples/shop");
    assert!(
        path.exists(),
        "{} is not built: cargo build -p usertrace-tracing --examples",
        path.display()
    );
    path
}

/// Requirements: B1
pub(crate) fn its_trace() {
    let directory = tempfile::tempdir().unwrap();
    // The daemons lock this file until all is written.
    let running = File::create(directory.path().join(".running")).unwrap();
    let status = Command::new(program())
        .env("USERTRACE_BACKEND", "fast")
        .env("USERTRACE_OUTPUT", directory.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    // SAFETY: `running` keeps the descriptor open.
    let locked = unsafe { libc::flock(running.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0);

    let read = babeltrace::lines(directory.path());
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    shop::check(read.lines.iter().map(|line| {
        let (head, fields) = line.split_once(": {").unwrap();
        (head.rsplit(' ').next().unwrap(), fields)
    }));
}
