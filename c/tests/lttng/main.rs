//! Programs that are instrumented for LTTng-UST, built as their authors do, give the same events as
//! with LTTng-UST itself (F7).

mod build;
mod daemon;
mod equal;
mod filtered;
mod linkage;
mod refused;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use usertrace_testing::c_library::CLibrary;

/// The library that this program's tests use.
static INSTALLED: CLibrary = CLibrary::new(concat!(
    env!("CARGO_TARGET_TMPDIR"),
    "/",
    env!("CARGO_CRATE_NAME")
));

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
    trials.push(filtered::with_lttng());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
