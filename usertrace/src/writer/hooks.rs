//! Functions of the runtime that a waiting writer calls.
//!
//! The runtime imports the writer, so it passes them in.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The functions. All must be async-signal-safe, and leave `errno` alone.
#[derive(Debug)]
pub(crate) struct Hooks {
    /// Tells the readers of the buffer at an address that a writer waits for them.
    pub(crate) tell_readers: fn(NonNull<u8>),
    /// Runs an update if traces changed.
    pub(crate) follow_traces: fn(),
}

/// The runtime's functions. NULL before [`set`], and in tests of the writer alone.
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the functions. The runtime calls it before it opens the first channel.
pub(crate) fn set(hooks: &'static Hooks) {
    let hooks = std::ptr::from_ref(hooks).cast_mut();
    // Pairs with the load in `get`.
    HOOKS.store(hooks, Ordering::Release);
}

fn get() -> Option<&'static Hooks> {
    // Pairs with the store in `set`. SAFETY: NULL, or a `&'static Hooks` that `set` stored.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// Tells the readers of a buffer that a writer waits for them, if the runtime set the hooks.
pub(super) fn tell_readers(buffer: NonNull<u8>) {
    if let Some(hooks) = get() {
        (hooks.tell_readers)(buffer);
    }
}

/// Runs an update if traces changed, if the runtime set the hooks.
pub(super) fn follow_traces() {
    if let Some(hooks) = get() {
        (hooks.follow_traces)();
    }
}
