//! What a writer that waits asks of the runtime, which is above it and hands the functions in.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The functions. All are async-signal-safe, and leave `errno` alone.
#[derive(Debug)]
pub(crate) struct Hooks {
    /// Tells the readers of a buffer that a writer waits for them.
    pub(crate) tell_readers: fn(NonNull<u8>),
    /// Follows what happened to traces, if anything did.
    pub(crate) follow_traces: fn(),
}

/// NULL: none were handed in, as in tests of the writer alone.
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(std::ptr::null_mut());

/// Hands the functions in, once, before the first channel is opened.
pub(crate) fn set(hooks: &'static Hooks) {
    let hooks = std::ptr::from_ref(hooks).cast_mut();
    // Pairs with the load in `get`.
    HOOKS.store(hooks, Ordering::Release);
}

fn get() -> Option<&'static Hooks> {
    // Pairs with the store in `set`. SAFETY: only a reference that lives for ever is ever stored
    // there.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

pub(super) fn tell_readers(buffer: NonNull<u8>) {
    if let Some(hooks) = get() {
        (hooks.tell_readers)(buffer);
    }
}

pub(super) fn follow_traces() {
    if let Some(hooks) = get() {
        (hooks.follow_traces)();
    }
}
