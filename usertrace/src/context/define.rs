//! Defines contexts of a program.

use std::ffi::c_void;
use std::fmt;

use super::apps;
use crate::os::signal::SignalMaskGuard;
use crate::runtime;
use crate::unload;

/// Longest name of a context that a program defines, without its prefix `app.` in traces.
pub const NAME_MAX: usize = apps::NAME_MAX;

/// Why a context cannot be defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefineError {
    /// The name is empty, longer than [`NAME_MAX`] bytes, or has other characters than ASCII
    /// letters, digits and `_`.
    Name,
    /// The process has too many contexts, including those that traces ask for.
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

/// Defines a context `app.NAME`. `read` is called in the thread of each event that goes to a
/// channel with this context. In a process that does not define the context, its value is 0. A
/// second definition replaces the first.
///
/// [`context!`](crate::context!) and [`thread_context!`](crate::thread_context!) need no `unsafe`.
///
/// # Safety
/// `read` is called wherever events are written, perhaps in signal handlers and inside `malloc`. So
/// it must be async-signal-safe: it must not borrow a `RefCell`, allocate, or initialise a
/// thread-local variable. It must not write events either. It must stay mapped: a library that
/// defines a context is never unloaded, and code that was generated at run time must not be freed.
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
    // A signal handler that looks for the name must not find it half written.
    let _held = SignalMaskGuard::new();
    let apps = runtime::current::apps();
    let app = apps.find(name.as_bytes()).ok_or(DefineError::TooMany)?;
    apps.define(app, read);
    Ok(())
}

/// Defines a context of the process: a number that all its threads share.
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
/// The number is read wherever events are written, including signal handlers. So the macro takes a
/// static atomic number, and no expression:
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
        // SAFETY: `read` loads a static atomic number, which is async-signal-safe.
        unsafe { $crate::context::define(name, read) }
    }};
}

/// A context with one number per thread; [`thread_context!`](crate::thread_context!) declares it.
#[derive(Debug)]
pub struct PerThread {
    name: &'static str,
    read: extern "C" fn() -> u64,
    set: fn(u64),
}

impl PerThread {
    /// Creates a context, for the macro.
    ///
    /// # Safety
    /// `read` must be as [`define`] requires.
    #[doc(hidden)]
    #[must_use]
    pub const unsafe fn new(
        name: &'static str,
        read: extern "C" fn() -> u64,
        set: fn(u64),
    ) -> Self {
        Self { name, read, set }
    }

    /// Defines the context, so that channels can ask for it.
    ///
    /// # Errors
    /// See [`DefineError`].
    pub fn define(&self) -> Result<(), DefineError> {
        // SAFETY: the contract of `new` for `read` is that of `define`.
        unsafe { define(self.name, self.read) }
    }

    /// The calling thread's number; initially 0.
    #[must_use]
    pub fn get(&self) -> u64 {
        (self.read)()
    }

    /// Sets the calling thread's number for its next events.
    pub fn set(&self, value: u64) {
        (self.set)(value);
    }
}

/// Declares a context with one number per thread, such as the id of the current request.
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
                // Needs no initialisation at the first access, and no destructor.
                static VALUE: ::std::sync::atomic::AtomicU64 =
                    const { ::std::sync::atomic::AtomicU64::new(0) };
            }

            extern "C" fn read() -> u64 {
                VALUE.with(|value| value.load(::std::sync::atomic::Ordering::Relaxed))
            }

            fn set(new: u64) {
                VALUE.with(|value| value.store(new, ::std::sync::atomic::Ordering::Relaxed));
            }

            // SAFETY: `read` loads an atomic number that exists as long as the thread, which is
            // async-signal-safe.
            unsafe { $crate::context::PerThread::new($name, read, set) }
        };
    };
}
