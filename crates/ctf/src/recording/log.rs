//! The log file beside the traces, for errors.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use usertrace_os::files;
use usertrace_sys::clock::realtime;

/// Name of the log.
pub const LOG: &str = "usertrace.log";

/// Appends a line with the time, a program and a message.
///
/// # Errors
/// If the file cannot be written, or is something other than a regular file.
pub fn append_to_log(directory: &Path, [who, what]: &[&str; 2]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true).mode(0o600);
    let mut log = files::open_to_write(options, &directory.join(LOG))?;
    log.write_all(format!("{} {who}: {what}\n", date()).as_bytes())
}

/// Reads at most `at_most` bytes of the log.
///
/// # Errors
/// If it cannot be read.
pub fn read_log(directory: &Path, at_most: u64) -> io::Result<String> {
    let log = files::open(OpenOptions::new().read(true), &directory.join(LOG))?;
    let mut text = Vec::new();
    log.take(at_most).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The current time in the format of RFC 3339.
fn date() -> String {
    let now = UNIX_EPOCH + Duration::from_nanos(realtime());
    humantime::format_rfc3339_millis(now).to_string()
}
