//! B2 to B5: the control channel of processes that run. The tests that a back end matters to,
//! guests run, too.
//!
//! Each test runs this very executable once more, as a program that does what it is told by its
//! input.

#[path = "fallback.rs"]
mod backend;
mod buffers;
mod channel;
mod controlled;
mod hostile;
mod probes;
mod program;
mod reports;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if std::env::var_os(backend::VARIABLE).is_some() {
        controlled::run();
        return ExitCode::SUCCESS;
    }
    let tests = [
        buffers::ALL,
        channel::ALL,
        hostile::ALL,
        probes::ALL,
        reports::ALL,
    ]
    .concat();
    let trials = tests.into_iter().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
