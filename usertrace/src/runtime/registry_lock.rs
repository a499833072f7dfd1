//! The lock of the registry: of the modules of a process, and of the tables that map their call
//! sites to probes.
//!
//! It keeps modules loaded while a thread uses their call sites, and serialises changes of tables.
//! A signal handler may wait for it: a holder blocks all signals, so the handler cannot have
//! interrupted one.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::os::signal::SignalMaskGuard;
use crate::probe::InFlight;

/// The lock's state, which children of `fork` do not inherit: it lies in memory that `fork` wipes.
/// All zeros: the lock is free, and no thread is in a probe.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RegistryState {
    /// The thread that holds the lock; 0: none.
    owner: AtomicU32,
    /// The threads that are in probes.
    pub(crate) in_flight: InFlight,
}

/// Holds the registry's lock while it lives.
#[derive(Debug)]
pub(crate) struct RegistryGuard {
    state: &'static RegistryState,
    /// Unblocks signals; dropped after the lock is released.
    _signals: SignalMaskGuard,
}

impl RegistryState {
    /// The thread that holds the lock; 0: none.
    pub(super) fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Takes the lock for `thread`, if it is free.
    pub(super) fn try_hold(&'static self, thread: u32) -> Option<RegistryGuard> {
        let signals = SignalMaskGuard::new();
        // Acquire pairs with the release in `drop`. SeqCst, as the fence in `unregister` says.
        self.owner
            .compare_exchange(0, thread, Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        Some(RegistryGuard {
            state: self,
            _signals: signals,
        })
    }
}

impl Drop for RegistryGuard {
    fn drop(&mut self) {
        // Pairs with `try_hold`.
        self.state.owner.store(0, Ordering::Release);
    }
}
