//! Programs that are instrumented for LTTng-UST: `lttng/tracepoint.h` and what else is in
//! `usertrace/lttng-ust`.

mod describe;
mod modules;
mod provider;

use std::sync::{Mutex, MutexGuard, PoisonError};

use modules::{Module, Modules};
use provider::{Probe, Tracepoint};

/// Constructors and destructors take it, which the dynamic linker calls one at a time: no signal
/// handler, and nobody who has it already.
static MODULES: Mutex<Modules> = Mutex::new(Modules::new());

fn modules() -> MutexGuard<'static, Modules> {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the tracepoints and probes of a program or library, unless they are there.
///
/// # Safety
/// From each start up to its end there must be pointers to what they say, or both are NULL. All of
/// it must stay until it is taken out, and the probes after that, if `pin` was called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_lttng_register(
    tracepoints: *const *mut Tracepoint,
    tracepoints_end: *const *mut Tracepoint,
    probes: *const *const Probe,
    probes_end: *const *const Probe,
    pin: unsafe extern "C" fn(),
) {
    // Now, even if there are no probes yet: when they come, the program may have threads, and the
    // fallback too late.
    usertrace::init();
    let mut modules = modules();
    if !modules.has((tracepoints, probes)) {
        // SAFETY: the section's bounds are the linker's, which the header's constructor gives.
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

/// Takes them out.
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
    // SAFETY: the section's bounds are the linker's, which the header's constructor gives.
    unsafe { std::slice::from_raw_parts(start, len) }
}
