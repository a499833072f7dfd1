//! What is wrong with the variables of the environment, for people: in a line on standard error for
//! each, and in the log beside the traces.
//!
//! This runs inside of other people's programs, before `main`. So it is one `write`, which neither
//! waits nor raises `SIGPIPE`; and it is said once for all processes that a process starts:
//! `USERTRACE_QUIET` is set then, which leaves the log only. Processes of one group whose traces
//! are in one directory say it once, too.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::env::{self, Backend, Bad, Quoted};
use super::shared::shared;
use super::signals::SignalMaskGuard;
use super::status::{NoFallback, Status};

/// What a pipe takes at once, or not at all.
const MAX: usize = libc::PIPE_BUF;

/// Says what is wrong with the environment, if it was not said. Not to be called from a signal
/// handler.
pub(super) fn of_environment(status: Status) {
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
    let mut lines: Vec<_> = complaints.iter().map(Bad::to_string).collect();
    lines.extend(of_status(status));
    // Once in a process, whatever copies of this crate it has.
    if lines.is_empty() || shared().said.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    let is_new = !falls_back || log::append(&settings.fast, &lines);
    if is_new && !env::is_quiet() {
        say(&lines);
        // SAFETY: texts that end with NUL. This runs before `main`, or where the program says that
        // it may.
        unsafe { libc::setenv(c"USERTRACE_QUIET".as_ptr(), c"1".as_ptr(), 1) };
    }
}

/// What keeps the fallback from tracing, if a variable says it.
fn of_status(status: Status) -> Option<String> {
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
        NoFallback::Context(name) => {
            format!("USERTRACE_CONTEXTS {}: it is no context", Quoted(name))
        }
        NoFallback::Memory(_) | NoFallback::Process(_) | NoFallback::Directory => {
            return Some(format!("cannot trace this program: {why}"));
        }
        // Its environment is not to be trusted, or says nothing of the fallback.
        NoFallback::Secure | NoFallback::NotBuilt => return None,
    };
    Some(format!(
        "cannot use {what}, or there are too many (this program is not traced)"
    ))
}

/// Says that the traces could not be written, at the end of the program.
#[cfg(feature = "fallback")]
pub(super) fn of_output(directory: &std::path::Path, error: &std::io::Error) {
    let directory = usertrace_sys::printable(&directory.to_string_lossy());
    say(&[format!("cannot write traces to \"{directory}\": {error}")]);
}

/// Writes lines to standard error, if that takes them at once: the program neither waits for a
/// reader nor dies of one that has gone.
fn say(lines: &[String]) {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "usertrace: {line}");
    }
    let bytes = &text.as_bytes()[..text.len().min(MAX)];
    let _held = SignalMaskGuard::new();
    // SAFETY: memory of this function, and numbers.
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
        // The reader went in between: the signal is ours, and is held back as yet.
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

    /// Behind so many bytes of a log, nobody looks whether it has a line.
    const LONGEST: u64 = 1 << 20;

    /// Appends lines to the log beside the traces, unless a process of this group did it, and says
    /// whether that is so. If there is no such directory, the lines are new.
    pub(super) fn append(settings: &env::Fast, lines: &[String]) -> bool {
        let directory = settings.directory();
        directory.is_none_or(|directory| append_to(&directory, lines).unwrap_or(true))
    }

    fn append_to(directory: &Path, lines: &[String]) -> std::io::Result<bool> {
        // As the daemons make it: for this user only.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        // There is none yet, or what has its name takes no line either.
        let before = read_log(directory, LONGEST).unwrap_or_default();
        // SAFETY: no memory is involved.
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
    /// There is no fallback, and no directory of its traces.
    pub(super) fn append(_: &super::super::env::Fast, _: &[String]) -> bool {
        true
    }
}
