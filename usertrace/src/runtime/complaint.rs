//! One line on standard error, for what a user must learn although the program says nothing of it.

/// Says it. By one `write`, so that lines of several processes do not mix.
pub(super) fn say(what: &str) {
    let line = format!("usertrace: {}\n", crate::printable::printable(what));
    // SAFETY: the kernel reads the line. If standard error is closed or full, nobody is to be told.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
