//! Blocks signals, so that no handler interrupts a critical section.

use syscalls::{Sysno, raw};

/// Bytes of the kernel's signal set.
const SET_LEN: usize = 8;

/// Blocks all signals of the calling thread until it is dropped.
///
/// A handler may fork. The child would go on in the middle of the parent's critical section, with
/// state that is valid in the parent only. Async-signal-safe; leaves `errno` alone. Does nothing
/// where a filter forbids the call.
#[derive(Debug)]
pub(crate) struct SignalMaskGuard {
    /// The signal mask to restore.
    before: u64,
    changed: bool,
}

impl SignalMaskGuard {
    /// Blocks the signals.
    pub(crate) fn new() -> Self {
        let mut before = 0;
        let changed = set_mask(&u64::MAX, &raw mut before);
        Self { before, changed }
    }
}

impl Drop for SignalMaskGuard {
    fn drop(&mut self) {
        if self.changed {
            set_mask(&self.before, std::ptr::null_mut());
        }
    }
}

/// Sets the calling thread's signal mask, and reports whether it did. Stores the former mask in
/// `before`, unless that is NULL.
fn set_mask(mask: &u64, before: *mut u64) -> bool {
    // SAFETY: the kernel reads `SET_LEN` bytes from `mask`, and writes as many to `before` unless
    // it is NULL: both callers pass a `u64`, or NULL.
    let ret = unsafe {
        raw::syscall4(
            Sysno::rt_sigprocmask as usize,
            libc::SIG_SETMASK as usize,
            std::ptr::from_ref(mask) as usize,
            before as usize,
            SET_LEN,
        )
    };
    ret == 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_: libc::c_int) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn signals_are_delivered_after_the_guard() {
        let signo = libc::SIGRTMIN() + 13;
        // SAFETY: a handler that counts.
        unsafe { libc::signal(signo, count as extern "C" fn(libc::c_int) as usize) };
        let held = SignalMaskGuard::new();
        // SAFETY: the handler is there.
        unsafe { libc::raise(signo) };
        assert_eq!(SEEN.load(Ordering::Relaxed), 0);
        drop(held);
        assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    }
}
