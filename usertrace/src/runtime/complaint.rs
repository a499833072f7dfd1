//! Reports invalid environment variables: one line for each on standard error, and in the log
//! beside the traces.
//!
//! This runs inside of traced programs, before `main`. So each report is one `write`, which neither
//! waits nor raises `SIGPIPE`. A process reports once for all its descendants: it sets
//! `USERTRACE_QUIET` then, and they only write to the log. Processes of one process group with a
//! common trace directory also log only once.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::env::{self, Backend, InvalidValue, Quoted};
use super::shared::shared;
use super::status::{NoFallback, Status};
use crate::os::signal::SignalMaskGuard;

/// The size that a pipe takes atomically or not at all.
const MAX: usize = libc::PIPE_BUF;

/// Reports what is wrong with the environment, once. Signal handlers must not call this.
pub(super) fn report_environment(status: Status) {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if ONCE.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut complaints = Vec::new();
    let settings = env::settings_or(|bad| complaints.push(bad));
    let falls_back = match settings.backend {
        Backend::Fast | Backend::Auto => true,
        Backend::Unset | Backend::Unknown => settings.fast.output.is_some(),
        Backend::Kernel | Backend::Off | Backend::Secure => false,
    };
    complaints.retain(|bad| falls_back || !bad.is_of_fallback());
    let mut lines: Vec<_> = complaints.iter().map(InvalidValue::to_string).collect();
    lines.extend(explain_status(status));
    // Once in a process, even with several copies of this crate.
    if lines.is_empty() || shared().reported.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    let is_new = !falls_back || log::append(&settings.fast, &lines);
    if is_new && !env::is_quiet() {
        write_lines(&lines);
        // SAFETY: both strings end with NUL. No other thread reads the environment: this runs
        // before `main`, or in a call of `init` by the program.
        unsafe { libc::setenv(c"USERTRACE_QUIET".as_ptr(), c"1".as_ptr(), 1) };
    }
}

/// Explains why the fallback cannot trace, if an environment variable is the cause.
fn explain_status(status: Status) -> Option<String> {
    let Status::NoFallback(why) = status else {
        return None;
    };
    let what = match why {
        NoFallback::Sizes => {
            return Some(
                "cannot use USERTRACE_SUBBUF_SIZE or USERTRACE_SUBBUF_COUNT: they are powers of two, at least 4096 bytes \
                 and 2 sub-buffers (this program is not traced)"
                    .to_owned(),
            );
        }
        NoFallback::Filter(word) => format!("USERTRACE_FILTER {}: it is no pattern", Quoted(word)),
        NoFallback::Condition(text, Some(error)) => {
            let at = error.place().start;
            return Some(format!(
                "cannot use the condition in USERTRACE_FILTER {}: at byte {at}, {error} (this program is not \
                 traced)",
                Quoted(text)
            ));
        }
        NoFallback::Condition(text, None) => {
            format!("the condition in USERTRACE_FILTER {}", Quoted(text))
        }
        NoFallback::Context(name) => {
            format!("USERTRACE_CONTEXTS {}: it is no context", Quoted(name))
        }
        NoFallback::Count(line) => {
            format!(
                "USERTRACE_COUNT {}: it does not say what to count",
                Quoted(line)
            )
        }
        NoFallback::CountWithoutRseq
        | NoFallback::Memory(_)
        | NoFallback::Process(_)
        | NoFallback::Directory => {
            return Some(format!("cannot trace this program: {why}"));
        }
        // A privileged program does not trust its environment; without the fallback, its variables
        // mean nothing.
        NoFallback::Secure | NoFallback::NotBuilt => return None,
    };
    Some(format!(
        "cannot use {what}, or there are too many (this program is not traced)"
    ))
}

/// Reports at the end of the program that the traces could not be written.
#[cfg(feature = "fallback")]
pub(super) fn report_output_error(directory: &std::path::Path, error: &std::io::Error) {
    let directory = usertrace_sys::printable(&directory.to_string_lossy());
    write_lines(&[format!("cannot write traces to \"{directory}\": {error}")]);
}

/// Writes lines to standard error if it takes them at once. The program neither waits for a reader
/// nor dies of a reader that has gone.
fn write_lines(lines: &[String]) {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "usertrace: {line}");
    }
    let bytes = &text.as_bytes()[..text.len().min(MAX)];
    let _held = SignalMaskGuard::new();
    // SAFETY: all pointers are to locals of this function that outlive the calls.
    unsafe {
        let mut ready = libc::pollfd {
            fd: libc::STDERR_FILENO,
            events: libc::POLLOUT,
            revents: 0,
        };
        if libc::poll(&raw mut ready, 1, 0) != 1 || ready.revents != libc::POLLOUT {
            return;
        }
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut pending);
        let was_pending = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
        let written = libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len());
        // If the reader went in between, consume the SIGPIPE that this write raised and that is
        // still blocked.
        if written < 0 && !was_pending {
            let mut pipe: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut pipe);
            libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const now);
        }
    }
}

#[cfg(feature = "fallback")]
mod log {
    use std::fs::DirBuilder;
    use std::os::unix::fs::DirBuilderExt as _;
    use std::path::Path;

    use usertrace_ctf::recording::{append_to_log, read_log};

    use super::super::env;

    /// Bytes of a log that are searched for duplicate lines.
    const LONGEST: u64 = 1 << 20;

    /// Appends lines to the log beside the traces, unless a process of this group did so before.
    /// Returns true if a line was new, or if there is no such directory.
    pub(super) fn append(settings: &env::Fast, lines: &[String]) -> bool {
        let directory = settings.directory();
        directory.is_none_or(|directory| append_to(&directory, lines).unwrap_or(true))
    }

    fn append_to(directory: &Path, lines: &[String]) -> std::io::Result<bool> {
        // Same mode as that of the daemons: for this user only.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        // There is no log yet, or it is not readable; then appending fails as well.
        let before = read_log(directory, LONGEST).unwrap_or_default();
        // SAFETY: `getpgrp` takes no arguments and cannot fail.
        let group = unsafe { libc::getpgrp() };
        let ends = lines.iter().map(|line| format!("of group {group}: {line}"));
        let is_new = |end: &String| !before.contains(&format!("{end}\n"));
        let new: Vec<_> = ends.filter(is_new).collect();
        for end in &new {
            let what = format!("process {} {end}", std::process::id());
            append_to_log(directory, &["usertrace", &what])?;
        }
        Ok(!new.is_empty())
    }
}

#[cfg(not(feature = "fallback"))]
mod log {
    /// Without the fallback there is no log: all lines are new.
    pub(super) fn append(_: &super::super::env::Fast, _: &[String]) -> bool {
        true
    }
}
