//! The program's side of tracing: gets buffers from the kernel, follows what happens to traces, survives `fork`.
//!
//! - [`init`] finds the kernel's calls, maps the areas (`update.rs`), and installs the handler of the update signal.
//! - An update (`refresh`) comes from that handler, or from the slow path of an event, which looks at the generation
//!   in the info area. It may come at any instruction, in several threads at once; one does the work (`lock.rs`).
//! - What is known of the buffers lies in memory that `fork` wipes (`state.rs`). The child's first event finds it
//!   empty, gets buffers of its own, and goes on there (A5). A child of `vfork` shares the memory; a wrapper of `vfork`
//!   keeps it out of rings of a CPU. A child of `clone` with `CLONE_VM` is not noticed.
//!
//! Two copies of this crate in one process, as in a Rust program under a library to preload, share all of this if they
//! find each other (`shared.rs`). Copies that do not, share the areas, the rings and the signal. The kernel takes the
//! acknowledgement of either for that of both then (A9): a thread that the other one did not wait for may still write a
//! record into a slot that has another trace by then.

mod cmdline;
mod complaint;
pub(crate) mod env;
#[cfg(feature = "fallback")]
mod fast;
mod hash;
mod info;
mod kernel;
mod known;
mod loaded;
pub(crate) mod lock;
pub(crate) mod membarrier;
mod modules;
pub(crate) mod shared;
mod signal;
pub(crate) mod signals;
mod state;
mod status;
mod text;
mod update;
pub(crate) mod walk;
mod wanted;
pub(crate) mod wiped;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

#[cfg(feature = "fallback")]
use usertrace_sys::filter;
use usertrace_sys::limits::SLOTS;
use usertrace_sys::{Calls, DiscoverError, Errno};

use self::env::{Backend as Wanted, Settings};
pub(crate) use self::signals::HeldBack;
use self::state::State;
use self::update::Updater;
use crate::context::{Apps, List};
use crate::control;
use crate::errno;
use crate::event::{self, ATTACH};
use crate::probe;
use crate::unload;
use crate::writer::{self, Channel, Hooks, Rseq};

#[cfg(feature = "fallback")]
use self::fast::LEN as FAST_LEN;
#[cfg(not(feature = "fallback"))]
const FAST_LEN: usize = 0;

pub use self::info::{BadArea, Told};
pub use self::kernel::Kernel;
pub use self::loaded::{Declared, callsites};
pub(crate) use self::loaded::{register, unregister};
#[doc(hidden)]
pub use self::shared::Shared;
use self::shared::shared;
pub use self::status::{Backend, NoFallback, Refused, Report, Status};

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
    rseq: Option<Rseq>,
    signo: u32,
    /// Why it is not the kernel itself.
    no_kernel: Option<DiscoverError>,
    #[cfg(feature = "fallback")]
    fast: Option<&'static fast::Fast>,
}

/// Runs before `main`, in each program and library that this crate is linked into.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Does what [`init`] does if there are events, so that the program need not do it, and all is ready in time.
extern "C" fn start() {
    // SAFETY: this module does not go while its constructor runs.
    if unsafe { event::own().callsites() }.next().is_some() {
        init_before_main();
    }
}

/// What a constructor does for a module whose events are declared as they come.
#[doc(hidden)]
pub extern "C" fn init_before_main() {
    // A program may expect it to begin with 0.
    let _errno = errno::keep();
    // It is quiet where it cannot trace.
    let _ = init();
}

/// Makes this process one that can be traced, if that can be done, and says whether it can.
///
/// A program that declares events need not call it: this is done before `main`. Where it was done, it looks whether traces
/// came or went, and gets a child of `fork` its own buffers then rather than with its first event. It is quiet: where
/// there is nothing to trace with, the program goes on as if there were no events in it. Only a variable that is set to what
/// it cannot be is told of, on standard error, unless `USERTRACE_QUIET=1` is set.
///
/// The environment says what to trace with: `USERTRACE_BACKEND=` `kernel`, `fast` (the fallback), `auto` (the first of
/// these that there is) or `off`. Without it, it is the kernel, or else the fallback if `USERTRACE_OUTPUT` says where it is
/// to write. `docs/fallback.md` has the fallback's variables. `USERTRACE_SIGNAL=` a number or `none` chooses another
/// update signal than `SIGRTMIN+3`.
///
/// Not to be called from a signal handler.
pub fn init() -> Status {
    let status = init_for_events();
    complaint::of_environment(status);
    control::start_as_asked();
    status
}

fn init_for_events() -> Status {
    init_by(|settings, rseq| {
        let wanted = settings.backend;
        let no_kernel = match wanted {
            Wanted::Fast => None,
            _ => match calls() {
                Ok(calls) => {
                    return Ok(Chosen {
                        kernel: calls,
                        no_kernel: None,
                        #[cfg(feature = "fallback")]
                        fast: None,
                    });
                }
                Err(error) => Some(error),
            },
        };
        let asked_for = settings.fast.output.is_some();
        match (wanted, no_kernel) {
            (Wanted::Fast | Wanted::Auto, _) => {}
            (Wanted::Unset, _) if asked_for => {}
            (Wanted::Secure, Some(_)) if asked_for => {
                return Err(Status::NoFallback(NoFallback::Secure));
            }
            (_, Some(error)) => return Err(Status::NoKernel(error)),
            (_, None) => return Err(Status::NotInitialised),
        }
        fall_back(settings, rseq, no_kernel)
    })
}

/// What to trace with.
struct Chosen {
    kernel: &'static dyn Kernel,
    no_kernel: Option<DiscoverError>,
    #[cfg(feature = "fallback")]
    fast: Option<&'static fast::Fast>,
}

#[cfg(feature = "fallback")]
fn fall_back(
    settings: &Settings,
    rseq: bool,
    no_kernel: Option<DiscoverError>,
) -> Result<Chosen, Status> {
    let fast = fast::start(&settings.fast, rseq).map_err(Status::NoFallback)?;
    Ok(Chosen {
        kernel: fast,
        no_kernel,
        fast: Some(fast),
    })
}

#[cfg(not(feature = "fallback"))]
fn fall_back(_: &Settings, _: bool, _: Option<DiscoverError>) -> Result<Chosen, Status> {
    Err(Status::NoFallback(NoFallback::NotBuilt))
}

fn calls() -> Result<&'static Calls, DiscoverError> {
    static CALLS: OnceLock<Calls> = OnceLock::new();
    let calls = Calls::discover()?;
    Ok(CALLS.get_or_init(|| calls))
}

/// [`init`], with something that stands for the kernel.
#[doc(hidden)]
pub fn init_with(kernel: impl FnOnce() -> Result<&'static dyn Kernel, DiscoverError>) -> Status {
    init_by(|_, _| {
        Ok(Chosen {
            kernel: kernel().map_err(Status::NoKernel)?,
            no_kernel: None,
            #[cfg(feature = "fallback")]
            fast: None,
        })
    })
}

fn init_by(choose: impl FnOnce(&Settings, bool) -> Result<Chosen, Status>) -> Status {
    // Nobody waits: a thread of a process that was forked in the middle of this would wait for ever.
    static BUSY: AtomicBool = AtomicBool::new(false);
    if SETUP.get().is_some() {
        // A child of `fork` that asks gets its own buffers now, not with its first event.
        if is_attached() {
            refresh_if_stale();
        } else {
            refresh();
        }
    } else if !BUSY.swap(true, Ordering::Acquire) {
        match set_up(choose) {
            Ok(setup) => {
                let _ = SETUP.set(setup);
                shared().modules.add(event::own(), Some(&STATE));
                // SAFETY: this module does not go while it is at work.
                probe::connect_more(unsafe { event::own().callsites() });
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

fn set_up(choose: impl FnOnce(&Settings, bool) -> Result<Chosen, Status>) -> Result<Setup, Status> {
    let settings = env::settings();
    match settings.backend {
        Wanted::Off => return Err(Status::Off),
        Wanted::Unknown => return Err(Status::UnknownBackend),
        _ => {}
    }
    let rseq = Rseq::find();
    let chosen = choose(&settings, rseq.is_ok())?;
    let rseq = match rseq {
        Err(error) if chosen.kernel.needs_rseq() => return Err(Status::NoRseq(error)),
        // Without rings of CPUs, an event is not to try a sequence first.
        _ if !chosen.kernel.needs_rseq() => None,
        rseq => rseq.ok(),
    };
    unload::never(start as *const c_void);
    // Another copy's, or a new one.
    let state = shared::once(&shared().state, State::map).ok_or(Status::NoMemory)?;
    writer::set_hooks(&Hooks {
        tell_readers,
        follow_traces: refresh_if_stale,
    });
    RSEQ.store(rseq.map_or(0, Rseq::to_raw), Ordering::Relaxed);
    // Pairs with the load in `state`; the event path's loads come after that of a mask, which is set later.
    STATE.store(state.as_ptr(), Ordering::Release);
    // SAFETY: the handlers use atomic access and system calls.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_here), Some(after_fork));
        libc::atexit(at_exit);
    }
    // The handler comes first: a signal may follow at once.
    let wanted = if chosen.kernel.removes_traces() {
        settings.signo
    } else {
        0
    };
    let signo = if wanted != 0 && signal::install(wanted) {
        wanted
    } else {
        0
    };
    Ok(Setup {
        kernel: chosen.kernel,
        rseq,
        signo,
        no_kernel: chosen.no_kernel,
        #[cfg(feature = "fallback")]
        fast: chosen.fast,
    })
}

extern "C" fn before_fork() {
    if let Some(setup) = SETUP.get() {
        setup.kernel.before_fork();
        keep_state(setup, true);
    }
}

/// In the parent.
extern "C" fn after_fork_here() {
    if let Some(setup) = SETUP.get() {
        keep_state(setup, false);
    }
}

/// A signal handler may have interrupted an event, and fork: the child goes on in the middle of that event, and must not
/// find the rings gone that it is about to write to. Where it can write to no effect, it keeps this state, and gets
/// another one for all that comes later.
fn keep_state(setup: &Setup, keep: bool) {
    if let Some(state) = state().filter(|_| setup.kernel.leaves_room()) {
        state.keep(keep);
    }
}

/// See [`keep_state`].
fn replace_state() {
    let Some(old) = state().filter(|state| state.is_attached()) else {
        return;
    };
    let _errno = errno::keep();
    match State::map() {
        Some(new) => {
            let (shared, new) = (shared(), new.as_ptr());
            // Both pair with the load in `state`.
            shared.state.store(new, Ordering::Release);
            shared.modules.set_state(new);
        }
        // SAFETY: the child of `fork` has one thread.
        None => unsafe { old.forget() },
    }
}

extern "C" fn at_exit() {
    // What destructors of modules still have to tell is not to be lost. Relaxed: they run in this thread, later.
    shared().exiting.store(1, Ordering::Relaxed);
    if let Some(setup) = SETUP.get() {
        setup.kernel.at_exit();
    }
}

/// In the child of a `fork`: lets its first event come to [`refresh`], also if no trace is active now.
extern "C" fn after_fork() {
    if let Some(setup) = SETUP.get() {
        setup.kernel.after_fork();
        if setup.kernel.leaves_room() {
            replace_state();
        }
    }
    if !is_attached() {
        // SAFETY: there is one thread.
        unsafe { shared().modules.callsites() }.for_each(|callsite| callsite.set_mask(ATTACH));
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
    if let Some(updater) = updater() {
        // Twice, if need be: of what changed while signals were held back, and after the update had looked, none told.
        for _ in 0..2 {
            let held = HeldBack::new();
            // SAFETY: the lock is held while the closure runs.
            updater.state.lock.run(|| unsafe { updater.run() });
            drop(held);
            if !is_stale() {
                break;
            }
        }
    }
}

fn updater() -> Option<Updater> {
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
fn tell_readers(buffer: NonNull<u8>) {
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
        // Without the way by the global offset table that the compiler takes to another crate's statics.
        // SAFETY: loads a word that is aligned, as an atomic load would.
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
/// The caller must have seen the slot's bit in a callsite's mask; the channel is one that a callsite told.
#[inline(always)]
pub(crate) unsafe fn place(slot: usize, channel: usize) -> (Option<Rseq>, &'static Channel) {
    // SAFETY: both statics are set before any mask is, and never again; slots in masks are below the number of slots, and
    // channels of callsites below that of channels.
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
        state.renew_threads();
    }
}

/// What contexts in a channel of a slot are made of: which they are, and the present stamp of what threads remember.
/// Nothing if there is no such channel.
pub(crate) fn contexts(slot: usize, channel: usize) -> Option<(&'static List, u64)> {
    let state = state()?;
    let list = state.contexts.get(channel)?.get(slot)?;
    Some((list, state.stamp.load(Ordering::Relaxed)))
}

/// Whether this process can be traced, and if not, why.
#[must_use]
pub fn status() -> Status {
    match (SETUP.get(), state()) {
        (None, _) | (_, None) => FAILURE
            .try_lock()
            .map_or(Status::NotInitialised, |status| *status),
        (Some(_), Some(state)) => match (state.bad_area(), state.error.load(Ordering::Relaxed)) {
            (Some(bad), _) => Status::BadArea(bad),
            _ if state.is_attached() => Status::Attached,
            (None, 0) => Status::Forked,
            (None, errno) => Status::NoBuffers(Errno::new(errno)),
        },
    }
}

/// What was chosen, and why.
#[must_use]
pub fn report() -> Report {
    let setup = SETUP.get();
    let report = Report {
        status: status(),
        backend: setup.map(|_| Backend::Kernel),
        no_kernel: setup.and_then(|setup| setup.no_kernel),
        output: None,
        daemons: [0; 2],
        error: None,
        limited: state().and_then(State::limited),
    };
    #[cfg(feature = "fallback")]
    if let Some(fast) = setup.and_then(|setup| setup.fast) {
        return Report {
            backend: Some(Backend::Fast),
            output: fast.directory().map(std::path::Path::to_owned),
            daemons: fast.daemons(),
            error: fast.error(),
            limited: fast.limited(),
            ..report
        };
    }
    report
}

/// Tells the readers of this process's buffers to look at them now (A2), and follows what happened to traces: a program
/// that gets no update signal learns here that its events are wanted.
///
/// # Errors
/// The kernel's; `ENXIO` if this process has no buffers.
pub fn switch() -> Result<(), Errno> {
    let updater = updater().filter(|updater| updater.state.is_attached());
    let updater = updater.ok_or(Errno::ENXIO)?;
    refresh_if_stale();
    updater.switch()
}

/// Makes this process write no events until [`initialise`], and tells readers to look at what it has written. Probes go on.
///
/// A thread that is in the middle of an event still writes that one. The process stays in its traces, and its children
/// write nothing either. Async-signal-safe, but for the time that `errno` takes.
///
/// # Errors
/// As [`switch`]'s.
pub fn finalise() -> Result<(), Errno> {
    shared().finalised.store(1, Ordering::Relaxed);
    refresh();
    switch()
}

/// Which events this process writes, where the fallback keeps them: patterns, and whether those that match are
/// refused. Nothing if there is no fallback. `room` is the caller's, for as long as this takes.
#[cfg(feature = "fallback")]
pub(crate) fn events(room: &mut filter::Filter, each: impl FnMut(bool, &[u8])) -> Option<()> {
    let fast = SETUP.get()?.fast?;
    filter::each_word(rules_now(fast, room), each);
    Some(())
}

/// The rules of this process.
#[cfg(feature = "fallback")]
fn rules_now<'a>(fast: &fast::Fast, room: &'a mut filter::Filter) -> &'a [u8] {
    if !shared().wanted.read(room) {
        room.clear();
        fast.copy_rules(room);
    }
    room.rules()
}

/// Has this process write the events that these words say, which are as the file `filter` of a trace takes them, and
/// no others; with `add`, in addition to what it had. To be called by one thread at a time. Async-signal-safe.
///
/// # Errors
/// The word that is none, or for which there is no room; nothing was changed then.
#[cfg(feature = "fallback")]
pub(crate) fn set_events<'a>(
    room: &mut filter::Filter,
    words: &'a str,
    add: bool,
) -> Result<(), NotSet<'a>> {
    let fast = SETUP.get().and_then(|setup| setup.fast);
    let fast = fast.ok_or(NotSet::NoFallback)?;
    if add {
        rules_now(fast, room);
    } else {
        room.clear();
    }
    for word in words.split_ascii_whitespace() {
        filter::add_rule(room, word.as_bytes()).ok_or(NotSet::Word(word))?;
    }
    shared().wanted.set(room.rules());
    refresh();
    Ok(())
}

/// Why a process writes the same events as before.
#[cfg(feature = "fallback")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSet<'a> {
    /// It has no fallback.
    NoFallback,
    /// This is no pattern, or there is no room for it.
    Word(&'a str),
}

/// Undoes [`finalise`], and gets this process's buffers if it has none. Says whether it can be traced.
pub fn initialise() -> Status {
    shared().finalised.store(0, Ordering::Relaxed);
    refresh();
    status()
}

/// The directory that the fallback writes to, if it is what traces are written with; nothing in it if they go nowhere.
pub(crate) fn output() -> Option<Option<&'static std::path::Path>> {
    #[cfg(feature = "fallback")]
    return SETUP.get()?.fast.map(fast::Fast::directory);
    #[cfg(not(feature = "fallback"))]
    None
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
    /// Bytes written to the rings of all channels but the control channel, headers of sub-buffers included.
    pub bytes: u64,
    /// Events that were dropped.
    pub lost: u64,
    /// Kinds of events that cannot be written, because the control channel had no room for their descriptions.
    pub undescribed: u32,
    /// Why none of this process's events come into the trace, if that is so.
    pub refused: Option<Refused>,
}

/// What this process wrote, trace by trace. The numbers are of a moment ago: others may be writing.
pub fn stats() -> impl Iterator<Item = TraceStats> {
    (0..SLOTS).filter_map(|slot| {
        let state = state().filter(|state| state.is_attached())?;
        let at = &state.slots[slot];
        let refused = Refused::from_number(at.refused.load(Ordering::Relaxed));
        let generation = match (at.generation.load(Ordering::Relaxed), refused) {
            (0, Some(Refused::Limited)) => at.passed_over.load(Ordering::Relaxed),
            (0, Some(_)) => at.given.load(Ordering::Relaxed),
            (generation, _) => generation,
        };
        let (bytes, lost) = state
            .of_events(slot)
            .flat_map(|(_, channel)| channel.positions())
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
            refused,
        })
    })
}
