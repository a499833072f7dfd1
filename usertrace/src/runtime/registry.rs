//! The registry: the modules of this process, and their call sites. It works without the tracing
//! state, too: a process that cannot be traced still has probes and a control channel.

use std::sync::atomic::{Ordering, fence};

use super::registry_lock::{RegistryGuard, RegistryState};
use super::shared::{once, shared};
use crate::event::{self, Callsite};
use crate::os::{self, fork_private};

/// The lock's state; none before the first probe or control channel.
pub(crate) fn state() -> Option<&'static RegistryState> {
    // Acquire pairs with the store in `once`. SAFETY: a state that `once` stored is never unmapped.
    unsafe { shared().registry.load(Ordering::Acquire).as_ref() }
}

/// Creates the lock's state if there is none, and adds the call sites of this module. Signal
/// handlers must not call this.
pub(crate) fn open() -> Option<&'static RegistryState> {
    shared().modules.add(event::own(), None);
    // SAFETY: all zeros is a valid state, with a free lock.
    once(&shared().registry, || unsafe { fork_private::map() })?;
    state()
}

/// Takes the lock, and waits for it if needed. None if this thread holds it, or if there is no
/// lock.
pub(crate) fn hold() -> Option<RegistryGuard> {
    let state = state()?;
    let thread = os::thread::id();
    loop {
        if let Some(guard) = state.try_hold(thread) {
            return Some(guard);
        }
        if state.owner() == thread {
            return None;
        }
        std::thread::yield_now();
    }
}

/// Takes the lock, if it is free.
pub(crate) fn try_hold() -> Option<RegistryGuard> {
    state()?.try_hold(os::thread::id())
}

/// Iterates over all call sites of this process.
pub(crate) fn callsites(_: &RegistryGuard) -> impl Iterator<Item = &Callsite> {
    // SAFETY: a module waits for the lock before it goes, and the guard holds it.
    unsafe { shared().modules.callsites() }
}

/// Waits until no thread that held the lock before uses call sites. Later holders do not see a
/// module that was closed before.
pub(super) fn wait() {
    fence(Ordering::SeqCst);
    drop(hold());
}

/// A number that changes when modules come or go.
pub(crate) fn generation() -> u32 {
    let gone = shared().departures.load(Ordering::Relaxed);
    shared().modules.generation().wrapping_add(gone)
}
