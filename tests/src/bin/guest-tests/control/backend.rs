//! What the programs of these tests are, and what traces them: the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::{babeltrace, wait};
use usertrace_tests::child::Child;
use usertrace_tests::record::Recorder;
use usertrace_tests::{consumer, control, program};

/// The program that is controlled.
pub(crate) fn program() -> Command {
    Command::new(program::path("controlled"))
}

/// The command that controls.
pub(crate) fn usertrace() -> Command {
    Command::new(program::path("usertrace"))
}

/// A library with probes `say` and `second`, which was built with this program.
pub(crate) fn library(_: &Path, second: &str) -> PathBuf {
    Path::new(env!("USERTRACE_PROBES")).join(format!("{second}.so"))
}

/// A trace of all programs, with rings of 2 times 4096 bytes.
pub(crate) struct Trace(control::Trace);

impl Trace {
    pub(crate) fn new() -> Self {
        Self(control::Trace::started_with("controlled", 4096, 2))
    }

    /// Has a program be traced.
    pub(crate) fn variables(&self) -> Vec<(&str, &str)> {
        vec![("USERTRACE_BACKEND", "kernel")]
    }

    /// What a program says when it is asked what keeps its events.
    pub(crate) fn keeper(&self) -> String {
        "kernel".to_owned()
    }

    /// The same, as the command says it.
    pub(crate) fn place(&self) -> String {
        "in the kernel's buffers (usertrace list)".to_owned()
    }

    /// The one that the kernel chose.
    pub(crate) fn slot(&self) -> usize {
        self.0.stats().slot
    }

    /// Who waits for what the program will write.
    pub(crate) fn reader(&self) -> Reader {
        let file = wait::until_some("the program has a file", || {
            self.0.consumer_files("main").pop()
        });
        Reader(consumer::sleeper(&file))
    }

    /// When the program has ended: how many events there are, none of which was lost.
    pub(crate) fn events(self) -> usize {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("trace");
        Recorder::start(&self.0, &output).finish(&self.0);
        let read = babeltrace::read(&output);
        assert_eq!((read.discarded, read.discarded_packets), (0, 0));
        read.events.len()
    }
}

/// A process that sleeps.
pub(crate) struct Reader(Child);

impl Reader {
    /// Waits until it was told that there is something.
    pub(crate) fn wait_until_woken(self) {
        self.0.join();
    }
}
