//! The current back end and state of this process, and updates of them.
//!
//! [`init`](super::init()) stores both. The event path and the rest of the runtime load them.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

use usertrace_sys::DiscoverError;

use super::condition::ConditionTable;
#[cfg(feature = "fallback")]
use super::fallback::Fallback;
use super::kernel::Kernel;
use super::objects;
use super::shared::shared;
use super::state::State;
use super::status::Status;
use super::update::{self, Updater};
use crate::context::{Apps, ContextSources};
use crate::os::signal::SignalMaskGuard;
use crate::writer::{Channel, Rseq};

/// The state's address. Set once, before any call site's mask; a child of `fork` has it at the same
/// address.
pub(super) static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// [`Rseq::to_raw`]. Set together with [`STATE`].
pub(super) static RSEQ: AtomicIsize = AtomicIsize::new(0);

/// The back end that [`init`](super::init()) chose, if tracing is possible. It outlives a `fork`.
pub(super) static SETUP: OnceLock<Setup> = OnceLock::new();

/// Why there is no setup. Held only for moments, and never by a signal handler.
pub(super) static FAILURE: Mutex<Status> = Mutex::new(Status::NotInitialised);

pub(super) struct Setup {
    pub(super) kernel: &'static dyn Kernel,
    pub(super) rseq: Option<Rseq>,
    pub(super) signo: u32,
    /// Why the back end is not the kernel.
    pub(super) no_kernel: Option<DiscoverError>,
    #[cfg(feature = "fallback")]
    pub(super) fast: Option<&'static Fallback>,
}

/// The state, if this copy of the crate has one.
pub(super) fn state() -> Option<&'static State> {
    // Pairs with the store in `set_up`. SAFETY: set once, to a mapping that stays.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// Runs an update: gets buffers if this process has none, and follows the traces.
///
/// Async-signal-safe; preserves `errno`. If another thread, or the code that this interrupted, is
/// running an update, it runs another one instead.
pub(crate) fn refresh() {
    if let Some(updater) = updater() {
        // A second run catches changes that came after the first run had looked, while their signal
        // was blocked.
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

/// Looks for libraries that were loaded or unloaded, and describes the changes in all traces.
///
/// It waits for the dynamic linker, so signal handlers and allocators must not call this.
#[doc(hidden)]
pub fn notice_objects() {
    if SETUP.get().is_some() && objects::notice() {
        refresh();
    }
}

/// Describes the object with an address of an event, if it is new. Async-signal-safe.
pub(crate) fn notice_address(address: usize) {
    if objects::notice_address(address) {
        refresh();
    }
}

/// Number of changes to loaded objects so far.
#[inline]
pub(crate) fn object_changes() -> u32 {
    objects::count()
}

/// True if the info area changed since the last update.
fn is_stale() -> bool {
    state().is_some_and(is_stale_in)
}

#[inline(always)]
fn is_stale_in(state: &State) -> bool {
    update::area(state)
        .is_some_and(|area| area.generation() != state.generation.load(Ordering::Relaxed))
}

/// The state of a process that has areas of its own, if the info area has not changed since the
/// last update.
#[inline(always)]
pub(super) fn fresh_state() -> Option<&'static State> {
    state().filter(|state| state.is_attached() && !is_stale_in(state))
}

/// A bit for each slot whose trace is active now, whether or not an update has followed that.
pub(super) fn active_slots() -> u32 {
    (state().and_then(update::area)).map_or(u32::MAX, |area| area.active())
}

/// Runs [`refresh`] if the info area changed since the last update.
pub(crate) fn refresh_if_stale() {
    if is_stale() {
        refresh();
    }
}

/// Tells the readers of a buffer that a writer waits for them.
pub(super) fn tell_readers(buffer: NonNull<u8>) {
    if let Some(setup) = SETUP.get() {
        // Readers also poll, so a failure only delays them.
        let _ = setup.kernel.switch(buffer);
    }
}

/// Fires a trigger of a slot's trace.
pub(super) fn fire(slot: usize, number: u8) {
    let buffer = state().and_then(|state| state.buffer(slot));
    if let Some((setup, buffer)) = SETUP.get().zip(buffer) {
        // An error says that the trigger is gone. The next update follows that.
        let _ = setup.kernel.fire(buffer, number);
    }
}

/// True if this process has areas of its own.
pub(crate) fn is_attached() -> bool {
    state().is_some_and(State::is_attached)
}

/// The offset of each thread's rseq area.
///
/// # Safety
/// The caller must have seen a call site with a route.
#[inline(always)]
pub(crate) unsafe fn rseq() -> Rseq {
    #[cfg(target_arch = "x86_64")]
    let raw = {
        let raw: isize;
        // This avoids the load from the global offset table that the compiler uses for another
        // crate's statics. SAFETY: loads a word that is aligned, as an atomic load would.
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
    // SAFETY: `RSEQ` is set before any route is, and routes are set only if it is not 0
    // (`set_masks`).
    unsafe { Rseq::from_raw(raw).unwrap_unchecked() }
}

/// The rseq location and the channel that the event path needs to write to a slot.
///
/// # Safety
/// The caller must have seen the slot's bit in a call site's mask, and must have the channel from a
/// call site.
#[inline(always)]
pub(crate) unsafe fn place(slot: usize, channel: usize) -> (Option<Rseq>, &'static Channel) {
    // SAFETY: as this function's caller promises.
    (found_rseq(), unsafe { self::channel(slot, channel) })
}

/// The rseq location, if the process has one.
#[inline(always)]
pub(crate) fn found_rseq() -> Option<Rseq> {
    // SAFETY: it is 0, or was set by `to_raw` in this process.
    unsafe { Rseq::from_raw(RSEQ.load(Ordering::Relaxed)) }
}

/// The channel that the event path needs to write to a slot, or to count in it.
///
/// # Safety
/// As [`place`]'s.
#[inline(always)]
pub(crate) unsafe fn channel(slot: usize, channel: usize) -> &'static Channel {
    // SAFETY: `STATE` is set before any mask, and never changed; slots in masks are below `SLOTS`,
    // and channels of call sites below `CHANNELS`.
    unsafe {
        let state = STATE.load(Ordering::Relaxed).cast_const();
        let channels = (*state).channels.get_unchecked(slot);
        channels.get_unchecked(channel)
    }
}

/// The conditions of traces.
#[inline]
pub(super) fn conditions() -> Option<&'static ConditionTable> {
    Some(&state()?.conditions)
}

/// The contexts that conditions may refer to. `ip` is the event's address.
#[inline]
pub(super) fn context_sources(ip: usize) -> Option<ContextSources<'static>> {
    let state = state()?;
    // SAFETY: `RSEQ` is 0, or what `Rseq::to_raw` returned.
    let rseq = unsafe { Rseq::from_raw(RSEQ.load(Ordering::Relaxed)) };
    Some(ContextSources {
        apps,
        readers: &state.readers,
        rseq,
        stamp: state.stamp.load(Ordering::Relaxed),
        ip,
    })
}

/// The contexts that this process defines.
pub(crate) fn apps() -> &'static Apps {
    &shared().apps
}

/// Makes threads query their contexts, such as their id, again.
pub(crate) fn renew_threads() {
    if let Some(state) = state() {
        state.renew_threads(shared().next_stamp());
    }
}
