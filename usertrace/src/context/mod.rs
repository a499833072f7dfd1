//! Contexts: what records of a channel say besides the fields of events, if the channel asks for
//! it.
//!
//! `kind.rs` has those that any program can tell, `apps.rs` those that a program defines, which
//! `define.rs` is for. `list.rs` has the contexts of a channel, `values.rs` says where they come
//! from, and `write.rs` puts them in front of a payload. `LTT_ID_META` in
//! `sys/include/linux/ltt.h` says how readers are told.

mod apps;
mod define;
mod kind;
mod list;
mod values;
mod write;

pub(crate) use apps::Apps;
pub use define::{DefineError, NAME_MAX, PerThread, define};
pub(crate) use kind::Kind;
pub(crate) use list::List;
pub(crate) use write::write;

use crate::runtime;

/// The names of the contexts that any program can tell.
pub fn contexts() -> impl Iterator<Item = &'static str> {
    kind::plain()
}

/// Whether a channel can have a context of this name: one that any program can tell, or `app.NAME`.
#[must_use]
pub fn is_context(name: &str) -> bool {
    contexts().any(|plain| plain == name) || name.strip_prefix("app.").is_some_and(apps::is_name)
}

/// Has threads ask anew what they are: names and namespaces are those of the thread's first event
/// that had them since the last time, or since a trace with contexts came. Async-signal-safe.
pub fn renew() {
    runtime::renew_threads();
}
