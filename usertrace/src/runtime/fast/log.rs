//! The file beside the traces that says what went wrong.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::clock::date;
use usertrace_os::files;

/// Its name.
pub(crate) const NAME: &str = "usertrace.log";

/// Appends a line: the time, who says it, and what.
///
/// # Errors
/// If the file cannot be written, or is something that one would have to wait for.
pub(in crate::runtime) fn append(directory: &Path, [who, what]: &[&str; 2]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true).mode(0o600);
    let mut log = files::open_to_write(options, &directory.join(NAME))?;
    log.write_all(format!("{} {who}: {what}\n", date()).as_bytes())
}

/// What it says, up to a length.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn read(directory: &Path, at_most: u64) -> io::Result<String> {
    let log = files::open(OpenOptions::new().read(true), &directory.join(NAME))?;
    let mut text = Vec::new();
    log.take(at_most).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
