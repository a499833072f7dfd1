//! The registry: the modules of this process, and their callsites. It is there without the state,
//! too: a process that cannot be traced has probes and a control channel.

use std::sync::atomic::{Ordering, fence};

use super::fork_private;
use super::registry_lock::{RegistryGuard, RegistryState};
use super::shared::{once, shared};
use crate::event::{self, Callsite};
use crate::writer;

/// The lock's state, if there ever was a probe or a control channel.
pub(crate) fn state() -> Option<&'static RegistryState> {
    // Acquire pairs with the store in `once`. SAFETY: what is stored there stays.
    unsafe { shared().registry.load(Ordering::Acquire).as_ref() }
}

/// Makes the lock's state, if there is none, and the callsites of this module known. Not to be
/// called from a signal handler.
pub(crate) fn open() -> Option<&'static RegistryState> {
    shared().modules.add(event::own(), None);
    // SAFETY: zeros are a lock that is free.
    once(&shared().registry, || unsafe { fork_private::map() })?;
    state()
}

/// Waits for the lock; nothing if this thread has it, or if there is none.
pub(crate) fn hold() -> Option<RegistryGuard> {
    let state = state()?;
    let thread = writer::thread();
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

/// The lock, if it is free.
pub(crate) fn try_hold() -> Option<RegistryGuard> {
    state()?.try_hold(writer::thread())
}

/// All callsites of this process.
pub(crate) fn callsites(_: &RegistryGuard) -> impl Iterator<Item = &Callsite> {
    // SAFETY: no module goes before it got the lock, which is held.
    unsafe { shared().modules.callsites() }
}

/// Waits for those who look at callsites now. They do not come to a module that was closed before.
pub(super) fn wait() {
    fence(Ordering::SeqCst);
    drop(hold());
}

/// A number that changes with the callsites that there are.
pub(crate) fn generation() -> u32 {
    let gone = shared().departures.load(Ordering::Relaxed);
    shared().modules.generation().wrapping_add(gone)
}
