//! Tests of the control channel of running processes (B2 to B5). Guests also run the tests of
//! `usertrace_scenarios::control`. The modules here are for the host only.
//!
//! Each test starts this executable again, as the controlled program.

mod channel;
mod fallback;
mod hostile;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use usertrace::event;
use usertrace_scenarios::control::{Tests, controlled};

use crate::fallback::Fallback;

usertrace_testing::numbered_event!(n);

/// A program on the fallback.
type Program = usertrace_scenarios::control::Program<Fallback>;

fn main() -> ExitCode {
    if std::env::var_os(fallback::VARIABLE).is_some() {
        controlled::run(|n| event!(numbered, n));
        return ExitCode::SUCCESS;
    }
    let tests = [
        Tests::<Fallback>::BUFFERS,
        channel::ALL,
        hostile::ALL,
        Tests::<Fallback>::PROBES,
        Tests::<Fallback>::REPORTS,
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
