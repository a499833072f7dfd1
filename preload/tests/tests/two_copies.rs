//! A program with its own events, and so its own copy of the library, with the preloaded libraries
//! (D1, F3).

use std::process::{Command, ExitCode};

use usertrace::{Outcome, event};
use usertrace_tests_preload::{Libraries, Traces};

usertrace_testing::numbered_event!(n);

/// Environment variable that makes this process the program.
const VARIABLE: &str = "USERTRACE_TWO_COPIES";

fn program() -> ExitCode {
    for n in 0..10 {
        assert_eq!(event!(numbered, n), Outcome::Recorded);
    }
    // SAFETY: the process has one thread, and the child ends at once.
    let child = unsafe { libc::fork() };
    let recorded = event!(numbered, 10) == Outcome::Recorded;
    if child != 0 {
        let mut status = 0;
        // SAFETY: `status` has room for what the call writes.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
    ExitCode::from(u8::from(!recorded))
}

/// All copies use one pair of daemons, and one trace for each process.
fn main() -> ExitCode {
    if std::env::var_os(VARIABLE).is_some() {
        return program();
    }
    let traces = Traces::new();
    let output = traces
        .of(Libraries::all().of(Command::new(std::env::current_exe().unwrap()).env(VARIABLE, "1")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty() && output.stdout.is_empty());
    let read = traces.read();
    assert_eq!(traces.processes().len(), 2);
    assert_eq!(read.discarded, 0);
    let count = |name: &str| {
        let events = read.events.iter();
        events.filter(|event| event.name == name).count()
    };
    assert_eq!(count("test:numbered"), 12);
    assert!(count("libc:malloc") > 0);
    ExitCode::SUCCESS
}
