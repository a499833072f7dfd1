//! Looking at callsites where there may be no state: a process that cannot be traced has probes and a control channel, too.
//!
//! A lock keeps modules from going meanwhile, and tables from being changed by two. Who waits for it may be a signal
//! handler: who holds it holds signals back, so it is never what the handler interrupted.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::shared::{once, shared};
use super::signals::HeldBack;
use super::wiped;
use crate::event::{self, Callsite};
use crate::probe::Visits;
use crate::writer;

/// What is true of one process and not of its children: it lies in memory that `fork` wipes. All zeros is an idle one.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Desk {
    /// The thread that holds the lock; 0: nobody.
    owner: AtomicU32,
    /// Who is in a probe.
    pub(crate) visits: Visits,
}

/// The lock, as long as this lives.
#[derive(Debug)]
pub(crate) struct Held {
    desk: &'static Desk,
    /// Dropped after the lock.
    _signals: HeldBack,
}

/// The desk, if there ever was a probe or a control channel.
pub(crate) fn desk() -> Option<&'static Desk> {
    // Acquire pairs with the store in `once`. SAFETY: what is stored there stays.
    unsafe { shared().desk.load(Ordering::Acquire).as_ref() }
}

/// Makes the desk, if there is none, and the callsites of this module known. Not to be called from a signal handler.
pub(crate) fn open() -> Option<&'static Desk> {
    shared().modules.add(event::own(), None);
    // SAFETY: zeros are an idle one.
    once(&shared().desk, || unsafe { wiped::map() })?;
    desk()
}

/// Waits for the lock; nothing if this thread has it, or if there is no desk.
pub(crate) fn hold() -> Option<Held> {
    let desk = desk()?;
    let thread = writer::thread();
    loop {
        if let Some(held) = desk.try_hold(thread) {
            return Some(held);
        }
        if desk.owner.load(Ordering::Relaxed) == thread {
            return None;
        }
        std::thread::yield_now();
    }
}

/// The lock, if nobody has it.
pub(crate) fn try_hold() -> Option<Held> {
    desk()?.try_hold(writer::thread())
}

impl Desk {
    fn try_hold(&'static self, thread: u32) -> Option<Held> {
        let signals = HeldBack::new();
        // Acquire pairs with the release by who had it before. SeqCst, as the fence in `unregister` says.
        self.owner
            .compare_exchange(0, thread, Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        Some(Held {
            desk: self,
            _signals: signals,
        })
    }
}

impl Held {
    /// All callsites of this process.
    pub(crate) fn callsites(&self) -> impl Iterator<Item = &Callsite> {
        // SAFETY: who lets a module go waits for the lock.
        unsafe { shared().modules.callsites() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Pairs with `try_hold`.
        self.desk.owner.store(0, Ordering::Release);
    }
}

/// Waits for who looks at callsites now. A module that was closed before, nobody looks at afterwards.
pub(super) fn wait() {
    fence(Ordering::SeqCst);
    drop(hold());
}

/// A number that is another one when there are other callsites.
pub(crate) fn generation() -> u32 {
    let gone = shared().departures.load(Ordering::Relaxed);
    shared().modules.generation().wrapping_add(gone)
}
