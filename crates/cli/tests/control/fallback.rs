//! What the programs of these tests are, and what traces them: the fallback.

use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::babeltrace;
use usertrace_testing::daemons::Output;
use usertrace_testing::wait::until;

/// Says that this process is the program that is controlled.
pub(crate) const VARIABLE: &str = "USERTRACE_CONTROL_TEST";

/// The program that is controlled.
pub(crate) fn program() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(VARIABLE, "1");
    command
}

/// The command that controls.
pub(crate) fn usertrace() -> Command {
    Command::new(env!("CARGO_BIN_EXE_usertrace"))
}

/// A library with probes `say` and `second`.
pub(crate) fn library(directory: &Path, second: &str) -> PathBuf {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = directory.join(format!("{second}.so"));
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wno-unused-result", "-Werror"])
        .arg(format!("-DSECOND=\"{second}\""))
        .arg("-I")
        .arg(crate_directory.join("../../c/include"))
        .arg(crate_directory.join("tests/control/probes.c"))
        .arg("-o")
        .arg(&to)
        .status()
        .unwrap();
    assert!(status.success());
    to
}

/// Where the fallback writes what one program writes, in rings of 2 times 4096 bytes.
pub(crate) struct Trace(Output);

impl Trace {
    pub(crate) fn new() -> Self {
        Self(Output::new())
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// Has a program be traced.
    pub(crate) fn variables(&self) -> Vec<(&str, &str)> {
        vec![
            ("USERTRACE_BACKEND", "fast"),
            ("USERTRACE_OUTPUT", self.path()),
            ("USERTRACE_SUBBUF_SIZE", "4096"),
            ("USERTRACE_SUBBUF_COUNT", "2"),
        ]
    }

    /// What a program says when it is asked what keeps its events.
    pub(crate) fn keeper(&self) -> String {
        format!("fast {}", self.path())
    }

    /// The same, as the command says it.
    pub(crate) fn place(&self) -> String {
        format!("in {}", self.path())
    }

    /// The fallback has one trace.
    pub(crate) fn slot(&self) -> usize {
        0
    }

    /// Who waits for what will be written.
    pub(crate) fn reader(&self) -> Reader {
        let reader = Reader(self.0.path().to_owned());
        assert!(!reader.sees());
        reader
    }

    /// When the program has ended: how many events there are, none of which was lost.
    pub(crate) fn events(self) -> usize {
        self.0.wait();
        let read = babeltrace::lines(self.0.path());
        assert_eq!((read.discarded, read.discarded_packets), (0, 0));
        read.lines.len()
    }
}

/// The directory, in which the daemons make a trace when they read for the first time.
pub(crate) struct Reader(PathBuf);

impl Reader {
    fn sees(&self) -> bool {
        let mut entries = std::fs::read_dir(&self.0).unwrap();
        entries.any(|entry| entry.unwrap().path().join("metadata").exists())
    }

    /// Waits until it was told that there is something.
    pub(crate) fn wait_until_woken(self) {
        until("something is read", || self.sees());
    }
}
