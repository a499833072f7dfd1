//! How many files a recorder may have open: some for each process, and one for each ring that has
//! events.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

use nix::libc::rlim_t;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The limits as they were.
static BEFORE: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Lets this process have as many open as it may at most: the usual limit is for programs that call
/// `select()`. Programs that are recorded have the limit that was before. Where that fails, it
/// remains.
pub fn raise_open_files() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        let _ = BEFORE.set((soft, hard));
    }
}

/// A program has the limit that was before.
pub(super) fn not_in(command: &mut Command) {
    let Some(&(soft, hard)) = BEFORE.get() else {
        return;
    };
    let restore = move || Ok(setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?);
    // SAFETY: between fork and exec, setrlimit may be called, and nothing else is: it takes no lock
    // and no memory.
    unsafe { command.pre_exec(restore) };
}
