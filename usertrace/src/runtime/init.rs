//! Making a process one that can be traced: before `main`, and in each child of `fork`.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use usertrace_sys::{Calls, DiscoverError};

use super::current::{
    FAILURE, RSEQ, SETUP, STATE, Setup, is_attached, refresh, refresh_if_stale, state, tell_readers,
};
use super::env::{Backend as Wanted, Settings};
#[cfg(feature = "fallback")]
use super::fallback;
use super::kernel::Kernel;
use super::reporting::status;
use super::shared::shared;
use super::state::State;
use super::status::{NoFallback, Status};
use super::{complaint, env, shared, signal};
use crate::event::{self, ATTACH};
use crate::writer::{self, Hooks, Rseq};
use crate::{control, errno, probe, unload};

/// Runs before `main`, in each program and library that this crate is linked into.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Does what [`init`] does if there are events, so that the program need not do it, and all is
/// ready in time.
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
/// A program that declares events need not call it: this is done before `main`. Where it was done,
/// it looks whether traces came or went, and gets a child of `fork` its own buffers then rather
/// than with its first event. It is quiet: where there is nothing to trace with, the program goes
/// on as if there were no events in it. Only a variable that is set to what it cannot be is told
/// of, on standard error, unless `USERTRACE_QUIET=1` is set.
///
/// The environment says what to trace with: `USERTRACE_BACKEND=` `kernel`, `fast` (the fallback),
/// `auto` (the first of these that there is) or `off`. Without it, it is the kernel, or else the
/// fallback if `USERTRACE_OUTPUT` says where it is to write. `docs/fallback.md` has the fallback's
/// variables. `USERTRACE_SIGNAL=` a number or `none` chooses another update signal than
/// `SIGRTMIN+3`.
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
    fast: Option<&'static fallback::Fallback>,
}

#[cfg(feature = "fallback")]
fn fall_back(
    settings: &Settings,
    rseq: bool,
    no_kernel: Option<DiscoverError>,
) -> Result<Chosen, Status> {
    let fast = fallback::start(&settings.fast, rseq).map_err(Status::NoFallback)?;
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
    // Nobody waits: a thread of a process that was forked in the middle of this would wait for
    // ever.
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
    // Pairs with the load in `state`; the event path's loads come after that of a mask, which is
    // set later.
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

/// A signal handler may have interrupted an event, and fork: the child goes on in the middle of
/// that event, and must not find the rings gone that it is about to write to. Where it can write to
/// no effect, it keeps this state, and gets another one for all that comes later.
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
    // What destructors of modules still have to tell is not to be lost. Relaxed: they run in this
    // thread, later.
    shared().exiting.store(1, Ordering::Relaxed);
    if let Some(setup) = SETUP.get() {
        setup.kernel.at_exit();
    }
}

/// In the child of a `fork`: lets its first event come to [`refresh`], also if no trace is active
/// now.
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
