//! A program with events of its own, and thus a copy of the library, under the preloaded library: D1, F3.

use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode};

use usertrace::{Outcome, event};

usertrace::tracepoint! {
    mod numbered {
        provider: "test",
        name: "numbered",
        loglevel: Info,
        fields: { n: u64 }
    }
}

/// Says that this process is the program.
const VARIABLE: &str = "USERTRACE_TWO_COPIES";

fn program() -> ExitCode {
    for n in 0..10 {
        assert_eq!(event!(numbered, n), Outcome::Recorded);
    }
    // SAFETY: a process of one thread; the child ends at once.
    let child = unsafe { libc::fork() };
    let recorded = event!(numbered, 10) == Outcome::Recorded;
    if child != 0 {
        let mut status = 0;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
    ExitCode::from(u8::from(!recorded))
}

/// Both use one pair of daemons and one trace for each process.
fn main() -> ExitCode {
    if std::env::var_os(VARIABLE).is_some() {
        return program();
    }
    let own = std::env::current_exe().unwrap();
    let library = own.parent().unwrap().join("libusertrace_malloc.so");
    let traces = tempfile::tempdir_in("/tmp").unwrap();
    let link = traces.path().join("library.so");
    std::os::unix::fs::symlink(library, &link).unwrap();
    let running = std::fs::File::create(traces.path().join(".running")).unwrap();
    let output = Command::new(own)
        .env(VARIABLE, "1")
        .env("LD_PRELOAD", &link)
        .env("USERTRACE_BACKEND", "fast")
        .env("USERTRACE_OUTPUT", traces.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty() && output.stdout.is_empty());
    // The daemons have a lock of it.
    // SAFETY: a descriptor of this process.
    let locked = unsafe { libc::flock(running.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0);
    let directories = std::fs::read_dir(traces.path()).unwrap();
    let directories = directories.map(|entry| entry.unwrap().path());
    assert_eq!(
        directories
            .filter(|path| path.is_dir() && !path.is_symlink())
            .count(),
        2
    );
    let read = Command::new("babeltrace2")
        .arg(traces.path())
        .output()
        .unwrap();
    assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
    let text = String::from_utf8(read.stdout).unwrap();
    assert_eq!(text.matches("test:numbered").count(), 12);
    assert!(text.contains("libc:malloc:"));
    ExitCode::SUCCESS
}
