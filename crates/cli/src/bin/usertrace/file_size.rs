//! The limit of a file's size (`ulimit -f`), and the signal that tells of it.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

extern "C" fn ignore(_: i32) {}

/// Lets a write beyond the limit fail with `EFBIG`, which is reported, instead of ending the
/// command by SIGXFSZ without a word.
///
/// It is a handler, since programs that `record` starts would inherit that the signal is ignored.
pub(crate) fn survive_limit() {
    let action = |handler| SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing, so it may interrupt anything; no other thread was started
    // yet.
    let before = unsafe { sigaction(Signal::SIGXFSZ, &action(SigHandler::Handler(ignore))) };
    if before.is_ok_and(|before| matches!(before.handler(), SigHandler::SigIgn)) {
        // Programs are to inherit what was decided before.
        // SAFETY: as above, without a handler.
        let _ = unsafe { sigaction(Signal::SIGXFSZ, &action(SigHandler::SigIgn)) };
    }
}
