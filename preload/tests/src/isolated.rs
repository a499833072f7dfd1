//! Runs tests in separate processes.

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use usertrace::Status;

/// Environment variable with the name of this process's test.
const VARIABLE: &str = "USERTRACE_PRELOAD_TEST";

/// Main function of such tests.
///
/// # Panics
/// If the path of this program is unknown.
#[must_use]
pub fn isolated(tests: &'static [(&'static str, fn())]) -> ExitCode {
    if let Some((_, test)) =
        std::env::var_os(VARIABLE).and_then(|wanted| tests.iter().find(|(name, _)| wanted == *name))
    {
        test();
        return ExitCode::SUCCESS;
    }
    if usertrace::status() == Status::Attached {
        println!("skipped: this kernel has trace buffers of its own");
        return ExitCode::SUCCESS;
    }
    let trials = tests.iter().map(|(name, _)| {
        Trial::test(*name, move || {
            let status = Command::new(std::env::current_exe()?)
                .env(VARIABLE, name)
                .status()?;
            if status.success() {
                Ok(())
            } else {
                Err(Failed::from(status.to_string()))
            }
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
