//! Other programs' tests, in guests with the package's kernel.

use usertrace_tests::program;
use usertrace_vm::{Outcome, cache_dir};

use crate::package::{said, sh};

/// Parts of the names of guest tests that show all that the tracer does, once each: system calls,
/// areas, the control file system, consumers, recorders, filters, and a killed recorder.
const PARTS: &str = "traces_ areas_ second_recorder snapshot_ filter";

/// Requirements: F1
pub(crate) fn guest_tests_pass() {
    let script = format!(
        "export USERTRACE_TEST_SCALE=40; for part in {PARTS}; do \"$1\" $part || exit; done"
    );
    let run = sh("", &script, &[&program::path("guest-tests")]);
    assert_eq!(run.outcome, Outcome::Passed, "{}", said(&run));
    let stdout = String::from_utf8_lossy(&run.stdout);
    // A part that is in no name runs nothing.
    let parts = PARTS.split(' ').count();
    let ran = stdout.matches("test result: ok. ").count();
    assert_eq!(ran, parts, "{stdout}");
    assert!(!stdout.contains("test result: ok. 0 passed"), "{stdout}");
}

/// The series' tests of kselftest pass.
pub(crate) fn kernels_own_tests_pass() {
    let cache = cache_dir().expect("a cache");
    let kselftest = cache.join("kernel/selftest/ltt_test");
    assert!(
        kselftest.exists(),
        "{} is not built: scripts/test builds it",
        kselftest.display()
    );
    let run = sh("", "exec \"$1\"", &[&kselftest]);
    assert_eq!(run.outcome, Outcome::Passed, "{}", said(&run));
    let stdout = String::from_utf8_lossy(&run.stdout);
    assert!(stdout.contains("# Totals: pass:"), "{stdout}");
}
