//! Initialisation of tracing: before `main`, and in each child of `fork`.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use usertrace_sys::{Calls, DiscoverError};

use super::current::{
    FAILURE, RSEQ, SETUP, STATE, Setup, is_attached, refresh, refresh_if_stale, state, tell_readers,
};
use super::env::{Backend as BackendSetting, Settings};
#[cfg(feature = "fallback")]
use super::fallback;
use super::kernel::Kernel;
use super::reporting::status;
use super::shared::shared;
use super::state::State;
use super::status::{NoFallback, Status};
use super::{complaint, env, objects, shared, update_signal};
use crate::event::{self, ATTACH, WANTS_IP};
use crate::os::{errno, linker};
use crate::writer::{self, Hooks, Rseq};
use crate::{control, probe, unload};

/// Runs before `main`, in each program and library that links this crate.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Initialises tracing if this module has events, so that the program need not.
extern "C" fn start() {
    // SAFETY: the module stays loaded while its constructor runs.
    if unsafe { event::own().callsites() }.next().is_some() {
        init_before_main();
    }
}

/// Initialises tracing from a constructor, for a module that declares its events at run time.
#[doc(hidden)]
pub extern "C" fn init_before_main() {
    // Programs may expect `errno` to be 0 at first.
    let _errno = errno::keep();
    // A process that cannot be traced runs on silently.
    let _ = init();
}

/// Initialises tracing of this process, and returns whether the process can be traced.
///
/// A program that declares events need not call this: a constructor does so before `main`. A later
/// call follows traces that came or went, and gives a child of `fork` its own buffers before its
/// first event. If there is no back end, the program runs on as if it had no events. Only an
/// environment variable with an invalid value is reported, on standard error, unless
/// `USERTRACE_QUIET=1` is set.
///
/// `USERTRACE_BACKEND` selects the back end: `kernel`, `fast` (the fallback), `auto` (the kernel if
/// available, or else the fallback) or `off`. By default it is the kernel, or else the fallback if
/// `USERTRACE_OUTPUT` says where to write. `docs/fallback.md` describes the fallback's variables.
/// `USERTRACE_SIGNAL=` a number or `none` selects another update signal than `SIGRTMIN+3`.
///
/// Signal handlers must not call this.
pub fn init() -> Status {
    let status = init_for_events();
    complaint::report_environment(status);
    control::start_as_asked();
    status
}

fn init_for_events() -> Status {
    init_by(|settings, rseq| {
        let wanted = settings.backend;
        let no_kernel = match wanted {
            BackendSetting::Fast => None,
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
            (BackendSetting::Fast | BackendSetting::Auto, _) => {}
            (BackendSetting::Unset, _) if asked_for => {}
            (BackendSetting::Secure, Some(_)) if asked_for => {
                return Err(Status::NoFallback(NoFallback::Secure));
            }
            (_, Some(error)) => return Err(Status::NoKernel(error)),
            (_, None) => return Err(Status::NotInitialised),
        }
        fall_back(settings, rseq, no_kernel)
    })
}

/// The back end that was chosen.
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

/// Runs [`init`] with another implementation of the kernel's calls.
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
    // No thread waits here: in a child that was forked in the middle of this, it would wait
    // forever.
    static BUSY: AtomicBool = AtomicBool::new(false);
    if SETUP.get().is_some() {
        let has_loaded = objects::notice();
        // In a child of `fork`, a call of `init` gets the buffers now, not with the first event.
        if is_attached() && !has_loaded {
            refresh_if_stale();
        } else {
            refresh();
        }
    } else if !BUSY.swap(true, Ordering::Acquire) {
        match set_up(choose) {
            Ok(setup) => {
                let _ = SETUP.set(setup);
                // Traces describe what is loaded before they have events.
                linker::prepare();
                objects::notice();
                shared().modules.add(event::own(), Some(&STATE));
                // SAFETY: this module stays loaded while its code runs.
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
        BackendSetting::Off => return Err(Status::Off),
        BackendSetting::Unknown => return Err(Status::UnknownBackend),
        _ => {}
    }
    let rseq = Rseq::find();
    let chosen = choose(&settings, rseq.is_ok())?;
    let rseq = match rseq {
        Err(error) if chosen.kernel.needs_rseq() => return Err(Status::NoRseq(error)),
        // A back end without per-CPU rings has no use for rseq: events should not try a sequence
        // first.
        _ if !chosen.kernel.needs_rseq() => None,
        rseq => rseq.ok(),
    };
    unload::never(start as *const c_void);
    // The state of another copy of this crate, or a new one.
    let state = shared::once(&shared().state, State::map).ok_or(Status::NoMemory)?;
    writer::set_hooks(&Hooks {
        tell_readers,
        follow_traces: refresh_if_stale,
    });
    RSEQ.store(rseq.map_or(0, Rseq::to_raw), Ordering::Relaxed);
    // Pairs with the load in `state`. The event path loads it after a mask, which is set later.
    STATE.store(state.as_ptr(), Ordering::Release);
    // SAFETY: the handlers use atomic access and system calls.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_here), Some(after_fork));
        libc::atexit(at_exit);
    }
    // Install the handler first: a signal may follow at once.
    let wanted = if chosen.kernel.removes_traces() {
        settings.signo
    } else {
        0
    };
    let signo = if wanted != 0 && update_signal::install(wanted) {
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

/// Runs in the parent after `fork`.
extern "C" fn after_fork_here() {
    if let Some(setup) = SETUP.get() {
        keep_state(setup, false);
    }
}

/// Keeps the state across a `fork`, if writing to the old areas is harmless in the child. A signal
/// handler may interrupt an event and fork: the child then completes that event, and must find its
/// rings mapped. Later events use a new state.
fn keep_state(setup: &Setup, keep: bool) {
    if let Some(state) = state().filter(|_| setup.kernel.leaves_room()) {
        state.keep(keep);
    }
}

/// Gives the child of `fork` a new state; see [`keep_state`].
fn replace_state() {
    let Some(old) = state().filter(|state| state.is_attached()) else {
        return;
    };
    let _errno = errno::keep();
    match State::map() {
        Some(new) => {
            let (shared, new) = (shared(), new.as_ptr());
            // Each pairs with the load in `state`.
            shared.state.store(new, Ordering::Release);
            shared.modules.set_state(new);
        }
        // SAFETY: the child of `fork` has one thread.
        None => unsafe { old.forget() },
    }
}

extern "C" fn at_exit() {
    // Events of modules' destructors must not be lost. Relaxed: destructors run later in this
    // thread.
    shared().exiting.store(1, Ordering::Relaxed);
    if let Some(setup) = SETUP.get() {
        setup.kernel.at_exit();
    }
}

/// Runs in the child after `fork`: sends its first event to [`refresh`], even if no trace is active
/// now.
extern "C" fn after_fork() {
    if let Some(setup) = SETUP.get() {
        setup.kernel.after_fork();
        if setup.kernel.leaves_room() {
            replace_state();
        }
    }
    if !is_attached() {
        // SAFETY: the child of `fork` has one thread, so no module goes.
        unsafe { shared().modules.callsites() }
            .for_each(|callsite| callsite.set_mask(ATTACH | WANTS_IP));
    }
}
