//! Tests of the kernel that `scripts/kernel package --local` builds from Debian's configuration.
//!
//! This runs on the host. It builds the packages, unless they are there, and boots the kernel in
//! the plain harness.

mod lockdown;
mod module;
mod package;
mod tests_of_others;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

const CASES: &[(&str, fn())] = &[
    ("packages_are_complete", package::packages_are_complete),
    ("bad_arguments_are_named", package::bad_arguments_are_named),
    ("guest_tests_pass", tests_of_others::guest_tests_pass),
    (
        "kernels_own_tests_pass",
        tests_of_others::kernels_own_tests_pass,
    ),
    (
        "module_is_built_with_the_headers_and_loaded",
        module::is_built_with_the_headers_and_loaded,
    ),
    (
        "lockdown_leaves_tracing_as_it_is",
        lockdown::leaves_tracing_as_it_is,
    ),
    (
        "lockdown_refuses_an_unsigned_crash_kernel",
        lockdown::refuses_an_unsigned_crash_kernel,
    ),
    (
        "signed_crash_kernel_saves_traces_under_lockdown",
        lockdown::signed_crash_kernel_saves_traces,
    ),
    (
        "previous_boot_is_readable_unless_confidential",
        lockdown::previous_boot_is_readable_unless_confidential,
    ),
    (
        "doctor_explains_what_lockdown_forbids",
        lockdown::doctor_explains_what_it_forbids,
    ),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !arguments.list && std::env::var_os("USERTRACE_GUEST").is_some() {
        eprintln!("package-tests: these tests boot guests, and run on the host only");
        return ExitCode::FAILURE;
    }
    // Each guest has two processors.
    arguments.test_threads.get_or_insert(1);
    let trials = CASES
        .iter()
        .map(|&(name, test)| {
            let run = move || {
                test();
                Ok(())
            };
            // A build of a kernel comes first.
            Trial::test(name, run).with_kind("full")
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
