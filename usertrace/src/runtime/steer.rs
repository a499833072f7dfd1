//! What a program, or its control channel, asks of its own tracing.

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

/// Tells the readers of this process's buffers to look at them now (A2), and follows what happened
/// to traces: a program that gets no update signal learns here that its events are wanted.
///
/// # Errors
/// The kernel's; `ENXIO` if this process has no buffers.
pub fn flush() -> Result<(), Errno> {
    let updater = updater().filter(|updater| updater.state.is_attached());
    let updater = updater.ok_or(Errno::ENXIO)?;
    refresh_if_stale();
    updater.switch()
}

/// Makes this process write no events until [`resume`], and tells readers to look at what it has
/// written. Probes go on.
///
/// A thread that is in the middle of an event still writes that one. The process stays in its
/// traces, and its children write nothing either. Async-signal-safe, but for the time that `errno`
/// takes.
///
/// # Errors
/// As [`flush`]'s.
pub fn pause() -> Result<(), Errno> {
    shared().paused.store(1, Ordering::Relaxed);
    refresh();
    flush()
}

/// Which events this process writes, where the fallback keeps them: patterns, and whether those
/// that match are refused. Nothing if there is no fallback. `room` is the caller's, for as long as
/// this takes.
#[cfg(feature = "fallback")]
pub(crate) fn events(room: &mut filter::Filter, each: impl FnMut(bool, &[u8])) -> Option<()> {
    let fast = SETUP.get()?.fast?;
    filter::each_word(rules_now(fast, room), each);
    Some(())
}

/// The rules of this process.
#[cfg(feature = "fallback")]
fn rules_now<'a>(fast: &Fallback, room: &'a mut filter::Filter) -> &'a [u8] {
    if !shared().wanted.read(room) {
        room.clear();
        fast.copy_rules(room);
    }
    room.rules()
}

/// Has this process write the events that these words say, which are as the file `filter` of a
/// trace takes them, and no others; with `add`, in addition to what it had. To be called by one
/// thread at a time. Async-signal-safe.
///
/// # Errors
/// The word that is none, or for which there is no room; nothing was changed then.
#[cfg(feature = "fallback")]
pub(crate) fn set_events<'a>(
    room: &mut filter::Filter,
    words: &'a str,
    add: bool,
) -> Result<(), NotSet<'a>> {
    let fast = SETUP.get().and_then(|setup| setup.fast);
    let fast = fast.ok_or(NotSet::NoFallback)?;
    if add {
        rules_now(fast, room);
    } else {
        room.clear();
    }
    for word in words.split_ascii_whitespace() {
        filter::add_rule(room, word.as_bytes()).ok_or(NotSet::Word(word))?;
    }
    shared().wanted.set(room.rules());
    refresh();
    Ok(())
}

/// Why a process writes the same events as before.
#[cfg(feature = "fallback")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSet<'a> {
    /// It has no fallback.
    NoFallback,
    /// This is no pattern, or there is no room for it.
    Word(&'a str),
}

/// Undoes [`pause`], and gets this process's buffers if it has none. Says whether it can be traced.
pub fn resume() -> Status {
    shared().paused.store(0, Ordering::Relaxed);
    refresh();
    status()
}

/// The directory that the fallback writes to, if it is what traces are written with; nothing in it
/// if they go nowhere.
pub(crate) fn output() -> Option<Option<&'static std::path::Path>> {
    #[cfg(feature = "fallback")]
    return SETUP.get()?.fast.map(Fallback::directory);
    #[cfg(not(feature = "fallback"))]
    None
}
