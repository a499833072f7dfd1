//! Contexts: values that records of a channel contain besides the fields of events, if the channel
//! asks for them.
//!
//! `kind.rs` defines the contexts that any program has, and `apps.rs` those that a program defines
//! by `define.rs`. `list.rs` has the contexts of a channel, `values.rs` reads their values into a
//! `sink.rs`, `callstack.rs` walks the stack, whose memory is `stack.rs`, `known_code.rs` remembers
//! whose code was described, and `write.rs` prepends them to a payload. `ahead.rs` asks for numbers
//! before the first event, and `sources.rs` reads single ones for conditions of filters.
//! `LTT_ID_META` in `sys/include/linux/ltt.h` says how readers learn of them.

mod ahead;
mod apps;
mod callstack;
mod define;
mod kind;
mod known_code;
mod list;
mod sink;
mod sources;
mod stack;
mod values;
mod write;

pub(crate) use ahead::ask_ahead;
pub(crate) use apps::Apps;
pub use define::{DefineError, NAME_MAX, PerThread, define};
pub(crate) use kind::Kind;
pub(crate) use list::List;
pub(crate) use sources::{ContextSources, ContextValue};
pub(crate) use values::Code;
pub(crate) use write::write;

use crate::runtime;

/// The names of the contexts that any program has.
pub fn contexts() -> impl Iterator<Item = &'static str> {
    kind::plain()
}

/// True if a channel can have a context of this name: a predefined one, `callstack:N`, or
/// `app.NAME`.
#[must_use]
pub fn is_context(name: &str) -> bool {
    contexts().any(|plain| plain == name)
        || kind::frames(name.as_bytes()).is_some()
        || name.strip_prefix("app.").is_some_and(apps::is_name)
}

/// Makes threads query their contexts again. Otherwise, names and namespaces are those at the
/// thread's first event with contexts since the last call, or since a trace with contexts came.
/// Async-signal-safe.
pub fn renew() {
    runtime::renew_threads();
}
