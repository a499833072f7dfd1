//! A recorder that is killed at any of its writes and started again: nothing is missing or doubled
//! (C5, A10).
//!
//! Each test runs this executable once more as a recorder of simulated processes, which behave in
//! the same way each time, under ptrace. The test kills it at one of its calls that change files:
//! before the call, halfway, or right after.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod kill;
#[cfg(target_arch = "x86_64")]
mod kills;
mod recorder;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(directory) = std::env::var_os(recorder::DIRECTORY) {
        recorder::run(directory.as_ref());
        return ExitCode::SUCCESS;
    }
    let mut trials = Vec::new();
    #[cfg(target_arch = "x86_64")]
    for (name, test) in kills::ALL {
        let test = Trial::test(name, move || {
            test();
            Ok(())
        });
        trials.push(test.with_ignored_flag(kills::LONG.contains(&name)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
