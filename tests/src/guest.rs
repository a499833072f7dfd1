//! Where the tests run, and how much of them.

use std::env;

/// Set by the harness in the guest, to the name of the kernel's configuration.
const GUEST: &str = "USERTRACE_GUEST";
/// By how much counts are divided.
const SCALE: &str = "USERTRACE_TEST_SCALE";

/// Why this is no place to run tests of the kernel, if it is none.
///
/// # Errors
/// A text for the person who started them.
pub fn check() -> Result<(), String> {
    if env::var_os(GUEST).is_none() {
        return Err(format!(
            "these tests change the running kernel's traces, and run in the guest only ({GUEST} is not set): \
             scripts/guest -- PATH/guest-tests"
        ));
    }
    // SAFETY: no arguments, and it always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return Err("these tests must be run by root".into());
    }
    Ok(())
}

/// `count`, or fewer on a slow kernel; at least one.
///
/// `USERTRACE_TEST_SCALE` says how much fewer; without it the debug kernel gets a twentieth.
#[must_use]
pub fn scaled(count: u64) -> u64 {
    (count / scale()).max(1)
}

/// What a variable says, or else `usual`: for what takes minutes, and is asked for by name.
///
/// # Panics
/// If it says something else than a number.
#[must_use]
pub fn from_env(variable: &str, usual: u64) -> u64 {
    match env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is {text:?}, which is no number")),
        Err(_) => usual,
    }
}

/// The kernel is the one that looks for mistakes of its own.
#[must_use]
pub fn is_debug() -> bool {
    env::var(GUEST).is_ok_and(|config| config == "debug")
}

fn scale() -> u64 {
    match env::var(SCALE) {
        Ok(text) => text
            .parse()
            .ok()
            .filter(|&scale| scale > 0)
            .unwrap_or_else(|| panic!("{SCALE} is {text:?}, which is no number above 0")),
        Err(_) if is_debug() => 20,
        Err(_) => 1,
    }
}
