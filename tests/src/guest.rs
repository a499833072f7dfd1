//! Whether this is a guest, and how large the counts of its tests are.

use std::env;

/// The harness sets it in the guest to the name of the kernel's configuration.
const GUEST: &str = "USERTRACE_GUEST";
/// The divisor of large counts.
const SCALE: &str = "USERTRACE_TEST_SCALE";

/// Checks that tests of the kernel may run here: in the guest, as root.
///
/// # Errors
/// The reason why they may not, for the person who started them.
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

/// `count`, divided by `USERTRACE_TEST_SCALE`; at least 1. Without the variable, the debug kernel
/// gets a twentieth.
#[must_use]
pub fn scaled(count: u64) -> u64 {
    (count / scale()).max(1)
}

/// The number in a variable, or else `usual`: for counts of which more take minutes.
///
/// # Panics
/// If the variable's value is not a number.
#[must_use]
pub fn from_env(variable: &str, usual: u64) -> u64 {
    match env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is {text:?}, which is no number")),
        Err(_) => usual,
    }
}

/// Whether this is the debug kernel, which checks itself.
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
