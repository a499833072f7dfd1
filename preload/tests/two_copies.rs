//! A program with events of its own, and thus a copy of the library, under the preloaded library: D1, F3.

mod support;

use std::process::{Command, ExitCode};

use support::Traces;
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
    let traces = Traces::new();
    let link = traces.path().join("library.so");
    std::os::unix::fs::symlink(library, &link).unwrap();
    let output = traces
        .of(Command::new(own)
            .env(VARIABLE, "1")
            .env("LD_PRELOAD", &link))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty() && output.stdout.is_empty());
    let read = traces.read();
    let directories = std::fs::read_dir(traces.path()).unwrap();
    let directories = directories.map(|entry| entry.unwrap().path());
    assert_eq!(
        directories
            .filter(|path| path.is_dir() && !path.is_symlink())
            .count(),
        2
    );
    assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
    let text = String::from_utf8(read.stdout).unwrap();
    assert_eq!(text.matches("test:numbered").count(), 12);
    assert!(text.contains("libc:malloc:"));
    ExitCode::SUCCESS
}
