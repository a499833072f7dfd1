//! The log: a file beside the traces that says what went wrong.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use usertrace_os::files;
use usertrace_sys::clock::realtime;

/// The log's name.
pub const LOG: &str = "usertrace.log";

/// Appends a line to the log: the time, the program, and what it says.
///
/// # Errors
/// If the file cannot be written, or is something that one would have to wait for.
pub fn append_to_log(directory: &Path, [who, what]: &[&str; 2]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true).mode(0o600);
    let mut log = files::open_to_write(options, &directory.join(LOG))?;
    log.write_all(format!("{} {who}: {what}\n", date()).as_bytes())
}

/// Reads the log, `at_most` so many bytes of it.
///
/// # Errors
/// If it cannot be read.
pub fn read_log(directory: &Path, at_most: u64) -> io::Result<String> {
    let log = files::open(OpenOptions::new().read(true), &directory.join(LOG))?;
    let mut text = Vec::new();
    log.take(at_most).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The time of day as RFC 3339 has it.
fn date() -> String {
    let now = UNIX_EPOCH + Duration::from_nanos(realtime());
    humantime::format_rfc3339_millis(now).to_string()
}
