//! What this process traces with now, and following what happens to traces.
//!
//! [`init`](super::init()) stores it; the event path and all of the runtime load it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

use usertrace_sys::DiscoverError;

#[cfg(feature = "fallback")]
use super::fallback::Fallback;
use super::kernel::Kernel;
use super::shared::shared;
use super::signals::SignalMaskGuard;
use super::state::State;
use super::status::Status;
use super::update::{self, Updater};
use crate::context::{Apps, List};
use crate::writer::{Channel, Rseq};

/// Where the state is. Set once, before any callsite's mask; a child of `fork` has it at the same
/// address.
pub(super) static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// [`Rseq::to_raw`]. Set together with [`STATE`].
pub(super) static RSEQ: AtomicIsize = AtomicIsize::new(0);

/// What [`init`](super::init()) found, if tracing is possible. It outlives a `fork`.
pub(super) static SETUP: OnceLock<Setup> = OnceLock::new();

/// Why there is no setup. RegistryGuard for moments, and never by a signal handler.
pub(super) static FAILURE: Mutex<Status> = Mutex::new(Status::NotInitialised);

pub(super) struct Setup {
    pub(super) kernel: &'static dyn Kernel,
    pub(super) rseq: Option<Rseq>,
    pub(super) signo: u32,
    /// Why it is not the kernel itself.
    pub(super) no_kernel: Option<DiscoverError>,
    #[cfg(feature = "fallback")]
    pub(super) fast: Option<&'static Fallback>,
}

/// The state, if this copy of the crate has one.
pub(super) fn state() -> Option<&'static State> {
    // Pairs with the store in `set_up`. SAFETY: set once, to a mapping that stays.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// Does what [`init`] found to be possible: gets buffers if this process has none, and follows the
/// traces.
///
/// Async-signal-safe; leaves `errno` alone. If another thread, or what this interrupted, is at it,
/// that one does it once more.
pub(crate) fn refresh() {
    if let Some(updater) = updater() {
        // Twice, if need be: of what changed while signals were held back, and after the update had
        // looked, none told.
        for _ in 0..2 {
            let held = SignalMaskGuard::new();
            updater.state.locked(|guard| updater.run(guard));
            drop(held);
            if !is_stale() {
                break;
            }
        }
    }
}

pub(super) fn updater() -> Option<Updater> {
    let setup = SETUP.get()?;
    Some(Updater {
        kernel: setup.kernel,
        state: state()?,
        modules: &shared().modules,
        rseq: setup.rseq,
        signo: setup.signo,
    })
}

/// Something changed since the last update.
fn is_stale() -> bool {
    state().is_some_and(|state| {
        update::area(state)
            .is_some_and(|area| area.generation() != state.generation.load(Ordering::Relaxed))
    })
}

/// [`refresh`], if something changed since the last one.
pub(crate) fn refresh_if_stale() {
    if is_stale() {
        refresh();
    }
}

/// Tells the readers of a buffer that somebody waits for them.
pub(super) fn tell_readers(buffer: NonNull<u8>) {
    if let Some(setup) = SETUP.get() {
        // If it cannot be told, they look by themselves.
        let _ = setup.kernel.switch(buffer);
    }
}

/// This process has areas of its own.
pub(crate) fn is_attached() -> bool {
    state().is_some_and(State::is_attached)
}

/// Where each thread's rseq area lies.
///
/// # Safety
/// The caller must have seen a callsite with a route.
#[inline(always)]
pub(crate) unsafe fn rseq() -> Rseq {
    #[cfg(target_arch = "x86_64")]
    let raw = {
        let raw: isize;
        // Without the way by the global offset table that the compiler takes to another crate's
        // statics. SAFETY: loads a word that is aligned, as an atomic load would.
        unsafe {
            std::arch::asm!(
                "mov {raw}, qword ptr [rip + {RSEQ}]",
                raw = out(reg) raw,
                RSEQ = sym RSEQ,
                options(readonly, nostack, preserves_flags),
            );
        }
        raw
    };
    #[cfg(not(target_arch = "x86_64"))]
    let raw = RSEQ.load(Ordering::Relaxed);
    // SAFETY: it was set before any route was, as routes are set only where it is not 0.
    unsafe { Rseq::from_raw(raw).unwrap_unchecked() }
}

/// What the event path needs to write into a channel of a slot.
///
/// # Safety
/// The caller must have seen the slot's bit in a callsite's mask; the channel is one that a
/// callsite told.
#[inline(always)]
pub(crate) unsafe fn place(slot: usize, channel: usize) -> (Option<Rseq>, &'static Channel) {
    // SAFETY: both statics are set before any mask is, and never again; slots in masks are below
    // the number of slots, and channels of callsites below that of channels.
    unsafe {
        let rseq = Rseq::from_raw(RSEQ.load(Ordering::Relaxed));
        let state = STATE.load(Ordering::Relaxed).cast_const();
        let channels = (*state).channels.get_unchecked(channel);
        (rseq, channels.get_unchecked(slot))
    }
}

/// The contexts that this process defines.
pub(crate) fn apps() -> &'static Apps {
    &shared().apps
}

/// Has threads ask anew what they are.
pub(crate) fn renew_threads() {
    if let Some(state) = state() {
        state.renew_threads(shared().next_stamp());
    }
}

/// What contexts in a channel of a slot are made of: which they are, and the present stamp of what
/// threads remember. Nothing if there is no such channel.
pub(crate) fn contexts(slot: usize, channel: usize) -> Option<(&'static List, u64)> {
    let state = state()?;
    let list = state.contexts.get(channel)?.get(slot)?;
    Some((list, state.stamp.load(Ordering::Relaxed)))
}
