//! Programs that are instrumented for LTTng-UST: the library's part of `usertrace/lttng-ust`.

mod describe;
mod modules;
mod provider;

use std::sync::{Mutex, MutexGuard, PoisonError};

use modules::{Module, Modules};
use provider::{Probe, Tracepoint};

/// Registered modules. Only constructors and destructors take this lock, which the dynamic linker
/// calls one at a time. So no signal handler takes it, and no thread takes it twice.
static MODULES: Mutex<Modules> = Mutex::new(Modules::new());

fn modules() -> MutexGuard<'static, Modules> {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the tracepoints and probes of a program or library, unless they are registered.
///
/// # Safety
/// Each range must have pointers to tracepoints or probes, or both ends are NULL. All of it must
/// stay until it is unregistered, and the probes even longer if `pin` was called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_lttng_register(
    tracepoints: *const *mut Tracepoint,
    tracepoints_end: *const *mut Tracepoint,
    probes: *const *const Probe,
    probes_end: *const *const Probe,
    pin: unsafe extern "C" fn(),
) {
    // Initialise now, even without probes: when these come, the program may have threads, and the
    // fallback could no longer start.
    usertrace::init();
    let mut modules = modules();
    if !modules.has((tracepoints, probes)) {
        // SAFETY: the header's constructor passes the linker's bounds of the sections.
        let module = unsafe {
            Module::new(
                (tracepoints, probes),
                between(tracepoints, tracepoints_end),
                between(probes, probes_end),
                pin,
            )
        };
        modules.add(module);
    }
}

/// Unregisters them.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_lttng_unregister(
    tracepoints: *const *mut Tracepoint,
    probes: *const *const Probe,
) {
    modules().remove((tracepoints, probes));
}

/// # Safety
/// As for [`usertrace_lttng_register`].
unsafe fn between<T>(start: *const T, end: *const T) -> &'static [T] {
    if start.is_null() {
        return &[];
    }
    let len = (end.addr() - start.addr()) / size_of::<T>();
    // SAFETY: the header's constructor passes the linker's bounds of the sections.
    unsafe { std::slice::from_raw_parts(start, len) }
}
