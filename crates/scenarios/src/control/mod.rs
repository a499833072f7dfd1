//! The control channel of processes that run: a program that is controlled, and the tests for which
//! the back end matters.

mod buffers;
pub mod controlled;
mod probes;
mod program;
mod reports;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use self::program::{Program, command, error};

/// The source of the libraries of probes: `SECOND` is the name of the second probe.
pub const PROBES_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/control/probes.c");

/// Where the tests run: how they start programs, and what traces those.
pub trait Backend: 'static {
    type Trace: Trace;

    /// The program that is controlled.
    fn program() -> Command;

    /// The command that controls.
    fn usertrace() -> Command;

    /// A library with probes `say` and `second`. The directory is the caller's, for a library that
    /// is built only now.
    fn library(directory: &Path, second: &str) -> PathBuf;
}

/// A trace of the program, with rings of 2 times 4096 bytes.
pub trait Trace {
    type Reader: Reader;

    fn new() -> Self;

    /// The variables with which a program is traced.
    fn variables(&self) -> Vec<(&str, &str)>;

    /// The answer of a program to `watch`: what keeps its events.
    fn watch_answer(&self) -> String;

    /// The same, as `usertrace ctl PID watch --json` prints it.
    fn saved(&self) -> String;

    fn slot(&self) -> usize;

    /// Begins to wait for events.
    fn reader(&self) -> Self::Reader;

    /// How many events there are when the program has ended. None may be lost.
    fn events(self) -> usize;
}

/// A reader that waits for events of a trace.
pub trait Reader {
    /// Waits until the reader was woken.
    fn wait_until_woken(self);
}

/// The tests on a back end: `BUFFERS`, `PROBES` and `REPORTS`, each test with its name.
pub struct Tests<B>(PhantomData<B>);
