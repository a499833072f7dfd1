//! The programs of these tests, and the fallback, which traces them.

use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_scenarios::control::{self, Backend, Reader, Trace};
use usertrace_testing::babeltrace;
use usertrace_testing::daemons::Output;
use usertrace_testing::wait::until;

/// Says that this process is the program that is controlled.
pub(crate) const VARIABLE: &str = "USERTRACE_CONTROL_TEST";

/// This executable, as the program, and the fallback's daemons.
pub(crate) struct Fallback;

impl Backend for Fallback {
    type Trace = FallbackTrace;

    fn program() -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(VARIABLE, "1");
        command
    }

    fn usertrace() -> Command {
        Command::new(env!("CARGO_BIN_EXE_usertrace"))
    }

    fn library(directory: &Path, second: &str) -> PathBuf {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../c/include");
        let to = directory.join(format!("{second}.so"));
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Wno-unused-result", "-Werror"])
            .arg(format!("-DSECOND=\"{second}\""))
            .arg("-I")
            .arg(include)
            .arg(control::PROBES_SOURCE)
            .arg("-o")
            .arg(&to)
            .status()
            .unwrap();
        assert!(status.success());
        to
    }
}

/// A directory that the daemons of one program write to.
pub(crate) struct FallbackTrace(Output);

impl FallbackTrace {
    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

impl Trace for FallbackTrace {
    type Reader = Directory;

    fn new() -> Self {
        Self(Output::new())
    }

    fn variables(&self) -> Vec<(&str, &str)> {
        vec![
            ("USERTRACE_BACKEND", "fast"),
            ("USERTRACE_OUTPUT", self.path()),
            ("USERTRACE_SUBBUF_SIZE", "4096"),
            ("USERTRACE_SUBBUF_COUNT", "2"),
        ]
    }

    fn watch_answer(&self) -> String {
        format!("fast {}", self.path())
    }

    fn saved(&self) -> String {
        format!("in {}", self.path())
    }

    /// The fallback has one trace.
    fn slot(&self) -> usize {
        0
    }

    fn reader(&self) -> Directory {
        let reader = Directory(self.0.path().to_owned());
        assert!(!reader.has_trace());
        reader
    }

    fn events(self) -> usize {
        self.0.wait();
        let read = babeltrace::lines(self.0.path());
        assert_eq!((read.discarded, read.discarded_packets), (0, 0));
        read.lines.len()
    }
}

/// The directory in which the daemons create a trace when they first read a ring.
pub(crate) struct Directory(PathBuf);

impl Directory {
    fn has_trace(&self) -> bool {
        let mut entries = std::fs::read_dir(&self.0).unwrap();
        entries.any(|entry| entry.unwrap().path().join("metadata").exists())
    }
}

impl Reader for Directory {
    fn wait_until_woken(self) {
        until("a daemon reads", || self.has_trace());
    }
}
