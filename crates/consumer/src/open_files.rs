//! The limit of open files. A recorder needs some for each process, and one for each ring with
//! events.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

use nix::libc::rlim_t;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The limits before they were raised.
static BEFORE: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit. The default soft limit exists for
/// programs that call `select()`, so recorded programs start with the original limit. If the limit
/// cannot be raised, it stays.
pub fn raise_open_files() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        let _ = BEFORE.set((soft, hard));
    }
}

/// Makes a program start with the original limit.
pub(super) fn restore_limit_in(command: &mut Command) {
    let Some(&(soft, hard)) = BEFORE.get() else {
        return;
    };
    let restore = move || Ok(setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?);
    // SAFETY: the closure runs between fork and exec, and only calls setrlimit, which takes no lock
    // and allocates no memory.
    unsafe { command.pre_exec(restore) };
}
