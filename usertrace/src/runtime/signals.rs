//! Doing something that no signal handler interrupts.

use syscalls::{Sysno, raw};

/// Bytes of the kernel's set of signals.
const SET_LEN: usize = 8;

/// Holds all signals of this thread back, as long as it lives.
///
/// A handler may fork, and the child would go on in the middle of what the parent did, with what
/// only holds there. Async-signal-safe; leaves `errno` alone. Where the calls are forbidden, it
/// does nothing.
#[derive(Debug)]
pub(crate) struct SignalMaskGuard {
    /// What was held back before.
    before: u64,
    changed: bool,
}

impl SignalMaskGuard {
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

fn set_mask(mask: &u64, before: *mut u64) -> bool {
    // SAFETY: the kernel reads `SET_LEN` bytes, and writes as many if there is room for them.
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
    fn signals_come_afterwards() {
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
