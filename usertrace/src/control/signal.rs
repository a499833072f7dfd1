//! The handler of the control channel's signal. It calls the one that was there before.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};

use super::opened::control;
use crate::errno;

/// The signal that is handled here; 0: none.
static HANDLED: AtomicI32 = AtomicI32::new(0);

/// What was done with it before.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: stored once, before there is a handler that reads it.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::uninit()));

/// The start of `siginfo_t`, of a signal that a descriptor sent, on machines of 64 bits.
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

/// `POLL_IN` up to `POLL_HUP`: a descriptor sent it (`asm-generic/siginfo.h`).
const CODES: std::ops::RangeInclusive<libc::c_int> = 1..=6;

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void);

extern "C" fn on_signal(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let errno = errno::keep();
    let mut is_own = false;
    if let Some(control) = control() {
        // SAFETY: the kernel made it.
        let info = unsafe { &*info.cast::<Info>() };
        is_own = CODES.contains(&info.code) && control.has(info.descriptor);
        // Also if it is not: where too many signals are pending, the kernel sends one that names no
        // descriptor. But not what another signal's handler serves, or a thread, since the channel
        // was closed and opened again.
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
    // SAFETY: it was stored before this was a handler. One that takes one argument leaves the
    // others alone.
    unsafe {
        let before = (*BEFORE.0.get()).assume_init_ref();
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
            let handler: Handler = std::mem::transmute(before.sa_sigaction);
            handler(number, info, context);
        }
    }
}

/// Handles a signal, and says whether that can be done. After `fork` it is handled already.
pub(super) fn install(number: libc::c_int) -> bool {
    if HANDLED.load(Ordering::Relaxed) == number {
        return true;
    }
    let null = std::ptr::null_mut();
    // SAFETY: zeros are a sigaction; the handler does what one may. Nobody reads `BEFORE` yet, as
    // nothing is handled.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if HANDLED.load(Ordering::Relaxed) != 0
            || libc::sigaction(number, null, &raw mut action) != 0
        {
            return false;
        }
        (*BEFORE.0.get()).write(action);
        action.sa_sigaction = on_signal as Handler as usize;
        // What the one before holds back, it still does. Not on an alternate stack, which may be
        // too short for it: Rust's have 8 KiB, with all registers of a processor.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        if libc::sigaction(number, &raw const action, null) != 0 {
            return false;
        }
    }
    HANDLED.store(number, Ordering::Relaxed);
    true
}
