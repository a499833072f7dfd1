//! What `babeltrace2` prints of traces, as it is.

use std::path::Path;
use std::process::Command;

/// On standard output and standard error, in this time zone.
pub fn babeltrace(directory: &Path, zone: &str) -> (Vec<u8>, String) {
    let output = Command::new("babeltrace2")
        .arg(directory)
        .env("TZ", zone)
        .output()
        .expect("babeltrace2 (Debian package babeltrace2) must be installed to run this test");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {stderr}", output.status);
    (output.stdout, stderr)
}
