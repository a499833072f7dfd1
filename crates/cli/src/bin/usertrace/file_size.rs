//! The file size limit (`ulimit -f`), and the signal of a write beyond it.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

extern "C" fn ignore(_: i32) {}

/// Makes a write beyond the limit fail with `EFBIG`, which is reported, instead of ending the
/// command by SIGXFSZ without a message.
///
/// A handler does this, because programs that `record` starts would inherit an ignored signal.
pub(crate) fn survive_limit() {
    let action = |handler| SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing, so it may interrupt anything; no other thread was started
    // yet.
    let before = unsafe { sigaction(Signal::SIGXFSZ, &action(SigHandler::Handler(ignore))) };
    if before.is_ok_and(|before| matches!(before.handler(), SigHandler::SigIgn)) {
        // Started programs must inherit the caller's decision to ignore the signal.
        // SAFETY: SIG_IGN runs no code of this process.
        let _ = unsafe { sigaction(Signal::SIGXFSZ, &action(SigHandler::SigIgn)) };
    }
}
