//! The handler of the control channel's signal, which chains to the previous handler.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};

use super::opened::control;
use crate::os::errno;

/// The signal that this module handles; 0: none.
static HANDLED: AtomicI32 = AtomicI32::new(0);

/// The previous disposition of the signal.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: `install` stores it once, before the handler that reads it is installed.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::uninit()));

/// The start of `siginfo_t` for a signal that a file descriptor sent, on 64-bit machines.
#[repr(C)]
struct Info {
    _number: libc::c_int,
    _errno: libc::c_int,
    code: libc::c_int,
    _pad: libc::c_int,
    _band: libc::c_long,
    descriptor: libc::c_int,
}

const _: () = assert!(size_of::<Info>() <= size_of::<libc::siginfo_t>());

/// `POLL_IN` to `POLL_HUP`: a file descriptor sent the signal (`asm-generic/siginfo.h`).
const CODES: std::ops::RangeInclusive<libc::c_int> = 1..=6;

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void);

extern "C" fn on_signal(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let errno = errno::keep();
    let mut is_own = false;
    if let Some(control) = control() {
        // SAFETY: the kernel passes a valid `siginfo_t`, which is no shorter than `Info`.
        let info = unsafe { &*info.cast::<Info>() };
        is_own = CODES.contains(&info.code) && control.has(info.descriptor);
        // Serve even if the signal is not ours: if too many signals are pending, the kernel sends
        // one that names no descriptor. But do not serve for another signal's handler or a thread,
        // which may serve since the channel was closed and opened again.
        if control.mode.load(Ordering::Relaxed) == number {
            control.serve(false);
        }
    }
    drop(errno);
    if !is_own {
        chain(number, info, context);
    }
}

fn chain(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: `install` stored `BEFORE` before it installed this handler. A handler that takes one
    // argument ignores the others.
    unsafe {
        let before = (*BEFORE.0.get()).assume_init_ref();
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
            let handler: Handler = std::mem::transmute(before.sa_sigaction);
            handler(number, info, context);
        }
    }
}

/// Installs the handler; returns false if that is not possible. After `fork` it is installed
/// already.
pub(super) fn install(number: libc::c_int) -> bool {
    if HANDLED.load(Ordering::Relaxed) == number {
        return true;
    }
    let null = std::ptr::null_mut();
    // SAFETY: zeros are a valid sigaction, and `on_signal` is async-signal-safe. `BEFORE` has no
    // reader yet, because no handler is installed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if HANDLED.load(Ordering::Relaxed) != 0
            || libc::sigaction(number, null, &raw mut action) != 0
        {
            return false;
        }
        (*BEFORE.0.get()).write(action);
        action.sa_sigaction = on_signal as Handler as usize;
        // `sa_mask` stays that of the previous handler. No alternate stack, which may be too short
        // for that handler: Rust's have 8 KiB, including all registers of the processor.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        if libc::sigaction(number, &raw const action, null) != 0 {
            return false;
        }
    }
    HANDLED.store(number, Ordering::Relaxed);
    true
}
