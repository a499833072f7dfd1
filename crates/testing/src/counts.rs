//! Number of repetitions of randomised tests.

use std::env;

/// Returns `full` in the full tier, otherwise `usual`.
///
/// A random search finds more the longer it runs. `USERTRACE_TEST_COUNTS=full` selects the full
/// tier.
///
/// # Panics
/// If the variable has another value.
#[must_use]
pub fn counts(usual: u64, full: u64) -> u64 {
    match env::var("USERTRACE_TEST_COUNTS").as_deref() {
        Err(env::VarError::NotPresent) => usual,
        Ok("full") => full,
        other => panic!("USERTRACE_TEST_COUNTS is {other:?}; it can only be full"),
    }
}
