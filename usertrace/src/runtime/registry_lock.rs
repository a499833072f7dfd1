//! The lock of the registry: of the modules of a process, and of the tables that say what their
//! callsites do.
//!
//! It keeps modules from going while somebody looks at their callsites, and tables from being
//! changed by two threads. A signal handler may wait for it: its holder blocks all signals, so the
//! handler never interrupted that.

use std::sync::atomic::{AtomicU32, Ordering};

use super::signals::SignalMaskGuard;
use crate::probe::InFlight;

/// What is true of one process and not of its children: it lies in memory that `fork` wipes. All
/// zeros: the lock is free, and no thread is in a probe.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RegistryState {
    /// The thread that holds the lock; 0: none.
    owner: AtomicU32,
    /// The threads that are in probes.
    pub(crate) in_flight: InFlight,
}

/// The lock, as long as this lives.
#[derive(Debug)]
pub(crate) struct RegistryGuard {
    state: &'static RegistryState,
    /// Dropped after the lock.
    _signals: SignalMaskGuard,
}

impl RegistryState {
    /// The thread that holds the lock; 0: none.
    pub(super) fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

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
