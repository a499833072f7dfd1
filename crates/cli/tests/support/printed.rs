//! What `babeltrace2` prints of traces, as it is, but for control characters of two bytes.

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
    (escaped(&output.stdout), stderr)
}

/// With the control characters U+0080 to U+009F as `usertrace view` shows them: `babeltrace2` prints them, and a terminal may
/// obey them.
pub fn escaped(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match bytes.peek() {
            Some(second @ 0x80..=0x9f) if byte == 0xc2 => {
                escaped.extend(format!("\\xc2\\x{second:02x}").bytes());
                bytes.next();
            }
            _ => escaped.push(byte),
        }
    }
    escaped
}
