//! Contexts: what records of a channel say besides the fields of events, if the channel asks for it.
//!
//! `kind.rs` has those that any program can tell, `apps.rs` those that a program defines; `list.rs` which of them a channel
//! has, `values.rs` where they come from, `write.rs` puts them in front of a payload. `LTT_ID_META` in
//! `sys/include/linux/ltt.h` says how readers are told.

mod apps;
mod kind;
mod list;
mod values;
mod write;

pub(crate) use apps::Apps;
pub(crate) use kind::Kind;
pub(crate) use list::List;
pub(crate) use values::Remembered;
pub(crate) use write::write;

use std::fmt;

use crate::runtime::{self, HeldBack};

/// Longest name of a context that a program defines, without the `app.` that it gets in traces.
pub const NAME_MAX: usize = apps::NAME_MAX;

/// A context that cannot be defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefineError {
    /// The name is empty, longer than [`NAME_MAX`] bytes, or has other characters than ASCII letters, digits and `_`.
    Name,
    /// The process has as many as there can be, with those that traces ask for.
    TooMany,
}

impl fmt::Display for DefineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(
                f,
                "a context's name has 1 to {NAME_MAX} letters, digits and _"
            ),
            Self::TooMany => f.write_str("there are too many contexts"),
        }
    }
}

impl std::error::Error for DefineError {}

/// Defines a context `app.NAME`: `read` is called for each event that goes to a channel which asks for it, in the thread
/// of the event. In a process in which nobody defines it, it is 0.
///
/// It is called wherever events are: in signal handlers, perhaps, and inside of `malloc`. So it must be async-signal-safe,
/// must not trace, and must stay where it is: a library that defines one is not unloaded any more. Who defines one
/// again replaces it. [`context!`](crate::context!) makes the function of an expression.
///
/// # Errors
/// See [`DefineError`].
pub fn define(name: &str, read: extern "C" fn() -> u64) -> Result<(), DefineError> {
    if !apps::is_name(name) {
        return Err(DefineError::Name);
    }
    keep_loaded(read);
    // A handler that looks for the name must not find it half written.
    let _held = HeldBack::new();
    let apps = runtime::apps();
    let app = apps.find(name.as_bytes()).ok_or(DefineError::TooMany)?;
    apps.define(app, read);
    Ok(())
}

/// The names of the contexts that any program can tell.
pub fn contexts() -> impl Iterator<Item = &'static str> {
    kind::plain()
}

/// Whether a channel can have a context of this name: one that any program can tell, or `app.NAME`.
#[must_use]
pub fn is_context(name: &str) -> bool {
    contexts().any(|plain| plain == name) || name.strip_prefix("app.").is_some_and(apps::is_name)
}

/// Has threads ask anew what they are: names and namespaces are those of the thread's first event that had them since the
/// last time, or since a trace with contexts came. Async-signal-safe.
pub fn renew() {
    runtime::renew_threads();
}

/// Keeps the library that a function is in from being unloaded. In a static program there is nothing to do.
fn keep_loaded(read: extern "C" fn() -> u64) {
    // SAFETY: plain data, that the call fills in.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about. A library that is loaded is only counted once more.
    unsafe {
        if libc::dladdr(read as *const libc::c_void, &raw mut info) != 0
            && !info.dli_fname.is_null()
        {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            libc::dlopen(info.dli_fname, flags);
        }
    }
}

/// Defines a context of the program: `context!("request", CURRENT.get())`. The expression gives a `u64`; where it is
/// evaluated, [`define`](crate::context::define) says.
#[macro_export]
macro_rules! context {
    ($name:expr, $value:expr) => {{
        extern "C" fn read() -> u64 {
            $value
        }
        $crate::context::define($name, read)
    }};
}
