//! Control of tracing by the program itself, or by its control channel: flush, pause, resume,
//! rules.

use std::sync::atomic::Ordering;

use usertrace_sys::Errno;
#[cfg(feature = "fallback")]
use usertrace_sys::filter;

#[cfg(feature = "fallback")]
use super::current::SETUP;
use super::current::{refresh, refresh_if_stale, updater};
#[cfg(feature = "fallback")]
use super::fallback::Fallback;
use super::reporting::status;
use super::shared::shared;
use super::status::Status;

/// Makes the readers of this process's buffers read them now (A2), and follows what happened to
/// traces. A program without an update signal learns here that a trace wants its events.
///
/// # Errors
/// Those of the kernel; `ENXIO` if this process has no buffers.
pub fn flush() -> Result<(), Errno> {
    let updater = updater().filter(|updater| updater.state.is_attached());
    let updater = updater.ok_or(Errno::ENXIO)?;
    refresh_if_stale();
    updater.switch()
}

/// Stops the events of this process until [`resume`], and makes readers read what it has written.
/// Probes continue.
///
/// A thread that is writing an event completes it. The process stays in its traces, and its
/// children write no events either. Async-signal-safe, but changes `errno`.
///
/// # Errors
/// Those of [`flush`].
pub fn pause() -> Result<(), Errno> {
    shared().paused.store(1, Ordering::Relaxed);
    refresh();
    flush()
}

/// Calls `each` for each pattern of this process's rules in the fallback; its first argument is
/// true if the pattern refuses events, and the last one has the condition in pieces. None without
/// the fallback. `room` is scratch space.
#[cfg(feature = "fallback")]
pub(crate) fn events(
    room: &mut filter::Filter,
    each: impl FnMut(bool, &[u8], &mut dyn Iterator<Item = &[u8]>),
) -> Option<()> {
    let fast = SETUP.get()?.fast?;
    filter::each_word(rules_now(fast, room), each);
    Some(())
}

/// The current rules of this process.
#[cfg(feature = "fallback")]
fn rules_now<'a>(fast: &Fallback, room: &'a mut filter::Filter) -> &'a [u8] {
    if !shared().process_rules.read(room) {
        room.clear();
        fast.copy_rules(room);
    }
    room.rules()
}

/// Replaces the rules of this process by these words, in the syntax of a trace's file `filter`;
/// with `add`, appends them. Only one thread at a time may call this. Async-signal-safe.
///
/// # Errors
/// The first word that is invalid or does not fit; the rules are then unchanged.
#[cfg(feature = "fallback")]
pub(crate) fn set_events(
    room: &mut filter::Filter,
    words: &str,
    add: bool,
) -> Result<(), RulesError> {
    let fast = SETUP.get().and_then(|setup| setup.fast);
    let fast = fast.ok_or(RulesError::NoFallback)?;
    if add {
        rules_now(fast, room);
    } else {
        room.clear();
    }
    for word in filter::written(words.as_bytes(), |byte| byte.is_ascii_whitespace()) {
        filter::add_rule(room, &word).map_err(RulesError::Rule)?;
    }
    shared().process_rules.set(room.rules());
    refresh();
    Ok(())
}

/// Why the rules of a process could not be changed.
#[cfg(feature = "fallback")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RulesError {
    /// The process does not use the fallback.
    NoFallback,
    /// A word is invalid, or does not fit.
    Rule(filter::RuleError),
}

/// Undoes [`pause`], and gets this process's buffers if it has none. Returns whether the process
/// can be traced.
pub fn resume() -> Status {
    shared().paused.store(0, Ordering::Relaxed);
    refresh();
    status()
}

/// The directory of the fallback's traces: none without the fallback, and `Some(None)` if it
/// discards them.
pub(crate) fn output() -> Option<Option<&'static std::path::Path>> {
    #[cfg(feature = "fallback")]
    return SETUP.get()?.fast.map(Fallback::directory);
    #[cfg(not(feature = "fallback"))]
    None
}
