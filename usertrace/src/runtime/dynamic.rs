//! Events that are declared while the program runs.

use super::loaded;
use crate::event::{Callsite, Entry, Section, is_valid};

/// An event description that is malformed or too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptionError(String);

impl std::fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no description of an event: {:?}", self.0)
    }
}

impl std::error::Error for DescriptionError {}

/// Declares an event by its metadata, as in the header `linux/ltt.h`, without the id:
/// `PROVIDER:NAME LOGLEVEL[ TYPE FIELD[;TYPE FIELD]…]`. This is for code that learns only at run
/// time which events it has; other code uses [`tracepoint!`](crate::tracepoint).
///
/// Signal handlers must not call this.
///
/// # Errors
/// [`DescriptionError`] if the description is malformed or too long.
pub fn declare(description: &str) -> Result<&'static Callsite, DescriptionError> {
    if !is_valid(description.as_bytes()) {
        return Err(DescriptionError(description.to_owned()));
    }
    let description: &'static str = Box::leak(description.to_owned().into_boxed_str());
    let callsite: &'static Callsite = Box::leak(Box::new(Callsite::described(description)));
    let entry: &'static [Entry] = Box::leak(Box::new([Entry::new(callsite)]));
    let entries = entry.as_ptr_range();
    let section = Section {
        start: entries.start,
        stop: entries.end,
    };
    // SAFETY: the entry, the call site and the description are leaked, so they stay; `is_valid`
    // checked the description above.
    unsafe { loaded::register(section) };
    Ok(callsite)
}

/// Adds the call sites of a module that this crate is not linked into, such as one in C. Returns
/// how many of its entries have invalid descriptions; these entries are removed. A section that was
/// added before is not added again.
///
/// Signal handlers must not call this.
///
/// # Safety
/// From `start` up to `stop` there must be entries of call sites with descriptions, all of which
/// stay until [`unregister`] returns.
#[doc(hidden)]
pub unsafe fn register(start: *const Entry, stop: *const Entry) -> usize {
    // SAFETY: the entries are valid until `unregister` returns: the contract of this function.
    unsafe { loaded::register(Section { start, stop }) }
}

/// Removes a section that [`register`] added. Returns true if no thread uses its call sites any
/// more.
///
/// Signal handlers must not call this.
#[doc(hidden)]
pub fn unregister(start: *const Entry, stop: *const Entry) -> bool {
    loaded::unregister(Section { start, stop })
}
