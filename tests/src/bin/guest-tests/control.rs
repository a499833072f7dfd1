//! B2 to B5: the tests of the control channel, with programs that the kernel traces.

use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_scenarios::control::{Backend, Reader, Tests, Trace};
use usertrace_testing::{babeltrace, wait};
use usertrace_tests::child::Child;
use usertrace_tests::record::Recorder;
use usertrace_tests::{consumer, control, program};

/// The tests.
pub(crate) type Cases = Tests<Kernel>;

/// Programs that were built with this one, and the kernel's trace buffers.
pub(crate) struct Kernel;

impl Backend for Kernel {
    type Trace = KernelTrace;

    fn program() -> Command {
        Command::new(program::path("controlled"))
    }

    fn usertrace() -> Command {
        Command::new(program::path("usertrace"))
    }

    fn library(_: &Path, second: &str) -> PathBuf {
        Path::new(env!("USERTRACE_PROBES")).join(format!("{second}.so"))
    }
}

/// A trace of all programs.
pub(crate) struct KernelTrace(control::Trace);

impl Trace for KernelTrace {
    type Reader = Sleeper;

    fn new() -> Self {
        Self(control::Trace::started_with("controlled", 4096, 2))
    }

    fn variables(&self) -> Vec<(&str, &str)> {
        vec![("USERTRACE_BACKEND", "kernel")]
    }

    fn watch_answer(&self) -> String {
        "kernel".to_owned()
    }

    fn saved(&self) -> String {
        "in the kernel's buffers (usertrace list)".to_owned()
    }

    fn slot(&self) -> usize {
        self.0.stats().slot
    }

    fn reader(&self) -> Sleeper {
        let file = wait::until_some("the program has a file", || {
            self.0.consumer_files("main").pop()
        });
        Sleeper(consumer::sleeper(&file))
    }

    fn events(self) -> usize {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("trace");
        Recorder::start(&self.0, &output).finish(&self.0);
        let read = babeltrace::read(&output);
        assert_eq!((read.discarded, read.discarded_packets), (0, 0));
        read.events.len()
    }
}

/// A process that sleeps until there is something to read.
pub(crate) struct Sleeper(Child);

impl Reader for Sleeper {
    fn wait_until_woken(self) {
        self.0.join();
    }
}
