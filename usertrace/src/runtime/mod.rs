//! The program's side of tracing: gets buffers from the kernel, follows what happens to traces, survives `fork`.
//!
//! - [`init`] finds the kernel's calls, maps the areas (`update.rs`), and installs the handler of the update signal.
//! - An update (`refresh`) comes from that handler, or from the slow path of an event, which looks at the generation
//!   in the info area. It may come at any instruction, in several threads at once; one does the work (`lock.rs`).
//! - What is known of the buffers lies in memory that `fork` wipes (`state.rs`). The child's first event finds it
//!   empty, gets buffers of its own, and goes on there (A5). A child of `vfork`, or of `clone` with `CLONE_VM`, shares
//!   the memory and is not noticed, as yet.
//!
//! Two copies of this crate in one process, as in a Rust program under the preload library, share the areas, the rings
//! and the signal. The kernel takes the acknowledgement of either for that of both (A9): a thread that the other one
//! did not wait for may still write a record into a slot that has another trace by then.

mod env;
mod info;
mod kernel;
mod lock;
mod signal;
mod state;
mod status;
mod update;

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

use usertrace_sys::uapi::LTT_MAX_TRACES;
use usertrace_sys::{Calls, DiscoverError, Errno};

use self::env::Backend;
use self::state::State;
use self::update::Updater;
use crate::event::{ATTACH, callsites};
use crate::writer::{Channel, Rseq};

pub use self::kernel::Kernel;
pub use self::status::Status;

/// Where the state is. Set once, before any callsite's mask; a child of `fork` has it at the same address.
static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// [`Rseq::to_raw`]. Set together with [`STATE`].
static RSEQ: AtomicIsize = AtomicIsize::new(0);

/// What [`init`] found, if tracing is possible. It outlives a `fork`.
static SETUP: OnceLock<Setup> = OnceLock::new();

/// Why there is no setup. Held for moments, and never by a signal handler.
static FAILURE: Mutex<Status> = Mutex::new(Status::NotInitialised);

struct Setup {
    kernel: &'static dyn Kernel,
    rseq: Rseq,
    signo: u32,
}

/// Makes this process one that can be traced, if the kernel can do that, and says whether it can.
///
/// Call it once, early; where it could, more calls do nothing. It is quiet: where there is nothing to trace with, the
/// program goes on as if there were no events in it. The environment may say `USERTRACE_BACKEND=off`, and
/// `USERTRACE_SIGNAL=` a number or `none` to choose another update signal than `SIGRTMIN+3`.
///
/// Not to be called from a signal handler.
pub fn init() -> Status {
    init_with(|| {
        static CALLS: OnceLock<Calls> = OnceLock::new();
        let calls = Calls::discover()?;
        Ok(CALLS.get_or_init(|| calls))
    })
}

/// [`init`], with something that stands for the kernel.
#[doc(hidden)]
pub fn init_with(kernel: impl FnOnce() -> Result<&'static dyn Kernel, DiscoverError>) -> Status {
    // Nobody waits: a thread of a process that was forked in the middle of this would wait for ever.
    static BUSY: AtomicBool = AtomicBool::new(false);
    if SETUP.get().is_none() && !BUSY.swap(true, Ordering::Acquire) {
        match set_up(kernel) {
            Ok(setup) => {
                let _ = SETUP.set(setup);
                refresh();
            }
            Err(status) => {
                if let Ok(mut failure) = FAILURE.lock() {
                    *failure = status;
                }
            }
        }
        BUSY.store(false, Ordering::Release);
    }
    status()
}

fn set_up(
    kernel: impl FnOnce() -> Result<&'static dyn Kernel, DiscoverError>,
) -> Result<Setup, Status> {
    let settings = env::settings();
    match settings.backend {
        Backend::Kernel => {}
        Backend::Off => return Err(Status::Off),
        Backend::Unknown => return Err(Status::UnknownBackend),
    }
    let kernel = kernel().map_err(Status::NoKernel)?;
    let rseq = Rseq::find().map_err(Status::NoRseq)?;
    let state = State::map().ok_or(Status::NoMemory)?;
    RSEQ.store(rseq.to_raw(), Ordering::Relaxed);
    // Pairs with the load in `state`; the event path's loads come after that of a mask, which is set later.
    STATE.store(state.as_ptr(), Ordering::Release);
    // SAFETY: the handler only stores to statics.
    unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    // The handler comes first: a signal may follow at once.
    let signo = if settings.signo != 0 && signal::install(settings.signo) {
        settings.signo
    } else {
        0
    };
    Ok(Setup {
        kernel,
        rseq,
        signo,
    })
}

/// In the child of a `fork`: lets its first event come to [`refresh`], also if no trace is active now.
extern "C" fn after_fork() {
    if !is_attached() {
        callsites().for_each(|callsite| callsite.set_mask(ATTACH));
    }
}

fn state() -> Option<&'static State> {
    // Pairs with the store in `set_up`. SAFETY: set once, to a mapping that stays.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// Does what [`init`] found to be possible: gets buffers if this process has none, and follows the traces.
///
/// Async-signal-safe; leaves `errno` alone. If another thread, or what this interrupted, is at it, that one does it
/// once more.
pub(crate) fn refresh() {
    if let (Some(setup), Some(state)) = (SETUP.get(), state()) {
        let updater = Updater {
            kernel: setup.kernel,
            state,
            rseq: setup.rseq,
            signo: setup.signo,
        };
        // SAFETY: the lock is held while the closure runs.
        state.lock.run(|| unsafe { updater.run() });
    }
}

/// [`refresh`], if something changed since the last one.
pub(crate) fn refresh_if_stale() {
    let stale = state().is_some_and(|state| {
        update::info(state)
            .is_some_and(|info| info.generation() != state.generation.load(Ordering::Relaxed))
    });
    if stale {
        refresh();
    }
}

/// This process has areas of its own.
pub(crate) fn is_attached() -> bool {
    state().is_some_and(State::is_attached)
}

/// What the event path needs to write into a slot.
///
/// # Safety
/// The caller must have seen the slot's bit in a callsite's mask.
#[inline(always)]
pub(crate) unsafe fn place(slot: usize) -> (Rseq, &'static Channel) {
    // SAFETY: both statics are set before any mask is, and never again; slots in masks are below the number of slots.
    unsafe {
        let state = &*STATE.load(Ordering::Relaxed);
        (
            Rseq::from_raw(RSEQ.load(Ordering::Relaxed)),
            state.main.get_unchecked(slot),
        )
    }
}

/// Whether this process can be traced, and if not, why.
#[must_use]
pub fn status() -> Status {
    match (SETUP.get(), state()) {
        (None, _) | (_, None) => FAILURE
            .try_lock()
            .map_or(Status::NotInitialised, |status| *status),
        (Some(_), Some(state)) => match state.error.load(Ordering::Relaxed) {
            _ if state.is_attached() => Status::Attached,
            0 => Status::Forked,
            errno => Status::NoBuffers(Errno::new(errno)),
        },
    }
}

/// Tells the readers of this process's buffers to look at them now (A2).
///
/// # Errors
/// The kernel's; `ENXIO` if this process has no buffers.
pub fn switch() -> Result<(), Errno> {
    let (Some(setup), Some(state)) = (SETUP.get(), state()) else {
        return Err(Errno::ENXIO);
    };
    if !state.is_attached() {
        return Err(Errno::ENXIO);
    }
    let updater = Updater {
        kernel: setup.kernel,
        state,
        rseq: setup.rseq,
        signo: setup.signo,
    };
    updater.switch()
}

/// What this process wrote into one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceStats {
    /// The trace's slot.
    pub slot: usize,
    /// The trace's generation: no two traces have the same.
    pub generation: u64,
    /// The trace is active.
    pub active: bool,
    /// Bytes written to the rings of the main channel, headers of sub-buffers included.
    pub bytes: u64,
    /// Events that were dropped.
    pub lost: u64,
    /// Kinds of events that cannot be written, because the control channel had no room for their descriptions.
    pub undescribed: u32,
}

/// What this process wrote, trace by trace. The numbers are of a moment ago: others may be writing.
pub fn stats() -> impl Iterator<Item = TraceStats> {
    (0..LTT_MAX_TRACES).filter_map(|slot| {
        let state = state().filter(|state| state.is_attached())?;
        let at = &state.slots[slot];
        let generation = at.generation.load(Ordering::Relaxed);
        let (bytes, lost) = state.main[slot]
            .positions()
            .fold((0, 0), |(bytes, losses), (head, lost)| {
                (bytes + head, losses + lost)
            });
        (generation != 0).then(|| TraceStats {
            slot,
            generation,
            active: at.active.load(Ordering::Relaxed) != 0,
            bytes,
            lost,
            undescribed: at.undescribed.load(Ordering::Relaxed),
        })
    })
}
