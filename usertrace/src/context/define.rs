//! Contexts that a program defines.

use std::ffi::c_void;
use std::fmt;

use super::apps;
use crate::runtime;
use crate::runtime::signals::SignalMaskGuard;
use crate::unload;

/// Longest name of a context that a program defines, without the `app.` that it gets in traces.
pub const NAME_MAX: usize = apps::NAME_MAX;

/// A context that cannot be defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefineError {
    /// The name is empty, longer than [`NAME_MAX`] bytes, or has other characters than ASCII
    /// letters, digits and `_`.
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

/// Defines a context `app.NAME`: `read` is called for each event that goes to a channel which asks
/// for it, in the thread of the event. In a process in which nobody defines it, it is 0. Who
/// defines one again replaces it.
///
/// [`context!`](crate::context!) and [`thread_context!`](crate::thread_context!) need no `unsafe`.
///
/// # Safety
/// `read` is called wherever events are: in signal handlers, perhaps, and inside of `malloc`. So it
/// must be async-signal-safe, which borrowing a `RefCell`, allocating, and initialising a
/// thread-local variable are not; and it must not trace. It must stay where it is: a library that
/// defines one is not unloaded any more, and code that was made at run time must not be freed.
///
/// ```compile_fail,E0133
/// extern "C" fn read() -> u64 {
///     17
/// }
/// usertrace::context::define("request", read); // it is unsafe
/// ```
///
/// # Errors
/// See [`DefineError`].
pub unsafe fn define(name: &str, read: extern "C" fn() -> u64) -> Result<(), DefineError> {
    if !apps::is_name(name) {
        return Err(DefineError::Name);
    }
    unload::never(read as *const c_void);
    // A handler that looks for the name must not find it half written.
    let _held = SignalMaskGuard::new();
    let apps = runtime::current::apps();
    let app = apps.find(name.as_bytes()).ok_or(DefineError::TooMany)?;
    apps.define(app, read);
    Ok(())
}

/// Defines a context of the process, a number that all its threads have in common.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// static QUEUE: AtomicU64 = AtomicU64::new(0);
///
/// usertrace::context!("queue", &QUEUE)?; // app.queue
/// QUEUE.fetch_add(1, Ordering::Relaxed);
/// # Ok::<(), usertrace::context::DefineError>(())
/// ```
///
/// It is read wherever events are, in signal handlers too. So it takes a static atomic number, and
/// no expression:
///
/// ```compile_fail,E0308
/// std::thread_local!(static REQUEST: std::cell::RefCell<u64> = std::cell::RefCell::new(0));
///
/// usertrace::context!("request", REQUEST.with_borrow(|request| *request));
/// ```
///
/// # Errors
/// See [`DefineError`](crate::context::DefineError).
#[macro_export]
macro_rules! context {
    ($name:expr, $value:expr) => {{
        static VALUE: &::std::sync::atomic::AtomicU64 = $value;

        extern "C" fn read() -> u64 {
            VALUE.load(::std::sync::atomic::Ordering::Relaxed)
        }

        let name: &str = $name;
        // SAFETY: it loads an atomic number that stays.
        unsafe { $crate::context::define(name, read) }
    }};
}

/// A context that each thread has a number of its own for:
/// [`thread_context!`](crate::thread_context!) declares it.
#[derive(Debug)]
pub struct PerThread {
    name: &'static str,
    read: extern "C" fn() -> u64,
    set: fn(u64),
}

impl PerThread {
    /// For the macro.
    ///
    /// # Safety
    /// See [`define`], of `read`.
    #[doc(hidden)]
    #[must_use]
    pub const unsafe fn new(
        name: &'static str,
        read: extern "C" fn() -> u64,
        set: fn(u64),
    ) -> Self {
        Self { name, read, set }
    }

    /// Defines the context, so that channels which ask for it have it.
    ///
    /// # Errors
    /// See [`DefineError`].
    pub fn define(&self) -> Result<(), DefineError> {
        // SAFETY: whoever made this said so of `read`.
        unsafe { define(self.name, self.read) }
    }

    /// The calling thread's number, which is 0 in the beginning.
    #[must_use]
    pub fn get(&self) -> u64 {
        (self.read)()
    }

    /// Sets the calling thread's number: its next events have it.
    pub fn set(&self, value: u64) {
        (self.set)(value);
    }
}

/// Declares a context that each thread has a number of its own for, such as the request that it is
/// at.
///
/// ```
/// usertrace::thread_context! {
///     /// The request that the thread is at.
///     static REQUEST = "request";
/// }
///
/// REQUEST.define()?; // app.request
/// REQUEST.set(17);
/// assert_eq!(REQUEST.get(), 17);
/// # Ok::<(), usertrace::context::DefineError>(())
/// ```
#[macro_export]
macro_rules! thread_context {
    ($(#[$attribute:meta])* $visibility:vis static $NAME:ident = $name:expr;) => {
        $(#[$attribute])*
        $visibility static $NAME: $crate::context::PerThread = {
            ::std::thread_local! {
                // Nothing is initialised with the first access, and nothing ends with the thread.
                static VALUE: ::std::sync::atomic::AtomicU64 =
                    const { ::std::sync::atomic::AtomicU64::new(0) };
            }

            extern "C" fn read() -> u64 {
                VALUE.with(|value| value.load(::std::sync::atomic::Ordering::Relaxed))
            }

            fn set(new: u64) {
                VALUE.with(|value| value.store(new, ::std::sync::atomic::Ordering::Relaxed));
            }

            // SAFETY: `read` loads an atomic number, which is there as long as the thread.
            unsafe { $crate::context::PerThread::new($name, read, set) }
        };
    };
}
