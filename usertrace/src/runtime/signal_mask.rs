//! Blocking signals around code that no handler may interrupt.

use syscalls::{Sysno, raw};

/// Size of the kernel's signal set, in bytes.
const SET_LEN: usize = 8;

/// Blocks all signals of this thread while it lives.
///
/// A handler may fork. The child would then continue in the middle of an operation of the parent,
/// with state that is valid only there. Async-signal-safe; preserves `errno`. If the system call is
/// forbidden (seccomp), this does nothing.
#[derive(Debug)]
pub(crate) struct SignalMaskGuard {
    /// The signal mask before.
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
    // SAFETY: the kernel reads `SET_LEN` bytes at `mask`, and writes as many at `before` unless
    // that is NULL.
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
    fn blocked_signals_are_delivered_afterwards() {
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
