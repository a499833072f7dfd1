//! Events that are declared while the program runs.

use super::loaded;
use crate::event::{Callsite, Entry, Section, is_sound};

/// A description that is none, or too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDescription(String);

impl std::fmt::Display for BadDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no description of an event: {:?}", self.0)
    }
}

impl std::error::Error for BadDescription {}

/// Declares an event by its metadata, as in the header `linux/ltt.h`, without the id:
/// `PROVIDER:NAME LOGLEVEL[ TYPE FIELD[;TYPE FIELD]…]`. For what only learns at run time which
/// events there are; all else uses [`tracepoint!`](crate::tracepoint).
///
/// Events stay, and memory with them: about 200 bytes and the description for each. Not to be
/// called from a signal handler. Its records are written by
/// [`record_parts`](crate::event::record_parts).
///
/// # Errors
/// When it is no description.
pub fn declare(description: &str) -> Result<&'static Callsite, BadDescription> {
    if !is_sound(description.as_bytes()) {
        return Err(BadDescription(description.to_owned()));
    }
    let description: &'static str = Box::leak(description.to_owned().into_boxed_str());
    let callsite: &'static Callsite = Box::leak(Box::new(Callsite::described(description)));
    let entry: &'static [Entry] = Box::leak(Box::new([Entry::new(callsite)]));
    let entries = entry.as_ptr_range();
    let section = Section {
        start: entries.start,
        stop: entries.end,
    };
    // SAFETY: all of it stays, and was found to be sound.
    unsafe { loaded::register(section) };
    Ok(callsite)
}

/// Adds the callsites of a program or library that this crate is not linked into, as one in C, and
/// says how many of its entries are of no events that can be described: these are taken out. What
/// is there already is not added again.
///
/// Not to be called from a signal handler.
///
/// # Safety
/// From `start` up to `stop` there must be entries, of callsites whose descriptions are where they
/// say, and they must stay until [`unregister`] returns.
#[doc(hidden)]
pub unsafe fn register(start: *const Entry, stop: *const Entry) -> usize {
    // SAFETY: the entries are there, and of callsites, as this function's caller promises.
    unsafe { loaded::register(Section { start, stop }) }
}

/// Takes out what [`register`] added, and says whether nobody looks at it any more.
///
/// Does nothing where the process is about to end. Not to be called from a signal handler.
#[doc(hidden)]
pub fn unregister(start: *const Entry, stop: *const Entry) -> bool {
    loaded::unregister(Section { start, stop })
}
