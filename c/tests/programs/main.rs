//! Programs in C and C++, built as their authors do, with the installed library, its header, and
//! pkg-config (F7).

mod binding;
mod build;
mod contexts;
mod control;
mod events;
mod libraries;
mod probes;
mod static_tls;
mod tutorial;
mod warnings;

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
    let all = [
        events::ALL,
        libraries::ALL,
        probes::ALL,
        control::ALL,
        contexts::ALL,
        warnings::ALL,
        binding::ALL,
        static_tls::ALL,
        tutorial::ALL,
    ];
    let tests = all.into_iter().flatten();
    let trials = tests.map(|&(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
