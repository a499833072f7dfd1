//! How often tests repeat what only chance decides.

use std::env;

/// `full`, if all counts are asked for, or else `usual`.
///
/// A random search finds more the longer it goes on. `USERTRACE_TEST_COUNTS=full` asks for the long
/// one.
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
