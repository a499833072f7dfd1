//! Events of the program that is instrumented for LTTng-UST (`c/tests/lttng/providers/program.c`):
//! as `babeltrace2` prints them, without times and CPUs.

use std::path::Path;
use std::process::Command;

use usertrace_testing::babeltrace::has_trace;

/// The events that LTTng-UST records. Its header cannot compile one of them as C++.
///
/// # Panics
/// If the repository is gone.
#[must_use]
pub fn expected(is_cpp: bool) -> Vec<String> {
    let providers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c/tests/lttng/providers");
    let text = std::fs::read_to_string(providers.join("events.txt")).expect("events.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| !(is_cpp && line.contains(" test_fields:negative: ")))
        .map(str::to_owned)
        .collect()
}

/// The events of a trace that are not about modules: level, name, and fields. None without a
/// trace, which `babeltrace2` refuses.
///
/// # Panics
/// If `babeltrace2` fails.
#[must_use]
pub fn events(trace: &Path) -> Vec<String> {
    if !has_trace(trace) {
        return Vec::new();
    }
    let output = Command::new("babeltrace2")
        .args(["--fields=loglevel"])
        .arg(trace)
        .output()
        .expect("babeltrace2 (Debian package babeltrace2) must be installed to run this test");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("texts of the tests are UTF-8");
    let is_own =
        |line: &&str| !line.contains(" lttng_ust_statedump:") && !line.contains(" lttng_ust_lib:");
    text.lines().filter(is_own).map(event).collect()
}

/// `[TIME] (+DELTA) LEVEL (NUMBER) NAME: { cpu_id = 0 }, { FIELDS }`
fn event(line: &str) -> String {
    let (before, fields) = line.split_once(" { cpu_id = ").expect(line);
    let (_, fields) = fields.split_once("}, ").expect(line);
    let (before, name) = before.rsplit_once(' ').expect(line);
    let (_, level) = before.rsplit_once('(').expect(line);
    format!("({level} {name} {fields}")
}
