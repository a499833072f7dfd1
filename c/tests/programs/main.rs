//! F7: programs in C and C++, as their authors build them: the installed library, its header, and pkg-config.

mod build;
mod events;
#[path = "../support/installed.rs"]
mod installed;
mod libraries;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let tests = events::ALL.iter().chain(libraries::ALL);
    let trials = tests.map(|&(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
