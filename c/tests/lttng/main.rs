//! Programs that are instrumented for LTTng-UST, built as their authors do, give the same events as
//! with LTTng-UST itself (F7).

mod build;
mod daemon;
mod equal;
#[path = "../support/installed.rs"]
mod installed;
mod linkage;
mod refused;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let tests = equal::ALL.iter().chain(linkage::ALL).chain(refused::ALL);
    let mut trials: Vec<_> = tests
        .map(|&(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        })
        .collect();
    trials.extend(equal::with_lttng());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
