//! The adversary, for a short time: random calls of several users on the debug kernel (F2, A11).
//!
//! In the full tier it runs for half an hour, on both kernels, in guests of its own.

use std::process::Command;

use usertrace_tests::program;

use crate::{Case, cases};

pub(crate) const ON_THE_DEBUG_KERNEL: &[Case] = cases![random_calls_of_many_users_do_no_harm];

/// Enough for each kind of call to happen on an emulated processor.
const SECONDS: &str = "20";

/// The adversary prints what it finds, and the seed that repeats the run. It comes last, so it also
/// attacks what the other tests have left in the kernel.
///
/// Requirements: A11, F2
fn random_calls_of_many_users_do_no_harm() {
    let adversary = program::path("adversary");
    let status = Command::new(adversary)
        .args(["--seconds", SECONDS])
        .status()
        .expect("it runs");
    assert!(status.success(), "it has found something: {status}");
}
