//! The update signal (A4), and its handler.
//!
//! A handler of the program stays: such a process gets no update signal, and follows traces when it
//! next begins a sub-buffer. `USERTRACE_SIGNAL` chooses another signal. A handler of another copy
//! of this crate, as in a preload library, is chained: the new handler calls it. Copies recognise
//! each other by a mark in the handler's code.

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The mark, which follows the jump that each handler starts with.
const MARK: &[u8; 16] = b"usertrace update";

/// The jump instruction.
#[cfg(target_arch = "x86_64")]
mod jump {
    pub(super) const LEN: usize = 5;

    pub(super) fn is(code: [u8; LEN]) -> bool {
        code[0] == 0xe9
    }

    /// Encoded by hand, so that its length does not depend on the distance.
    macro_rules! to {
        () => {
            ".byte 0xe9\n.long {to} - . - 4"
        };
    }
    pub(super) use to;
}
#[cfg(target_arch = "aarch64")]
mod jump {
    pub(super) const LEN: usize = 4;

    pub(super) fn is(code: [u8; LEN]) -> bool {
        code[3] & 0xfc == 0x14
    }

    macro_rules! to {
        () => {
            "b {to}"
        };
    }
    pub(super) use to;
}

/// The installed handler: jumps over the mark to the real one.
#[unsafe(naked)]
extern "C" fn marked(_: libc::c_int) {
    std::arch::naked_asm!(jump::to!(), ".ascii \"usertrace update\"", to = sym on_update)
}

/// The handler of another copy of this crate, or 0.
static OTHER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_update(signo: libc::c_int) {
    super::current::refresh();
    let other = OTHER.load(Ordering::Relaxed);
    if other != 0 {
        // SAFETY: `install` stores only a handler that `is_ours` recognised.
        let other: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(other) };
        other(signo);
    }
}

/// True if a handler belongs to a copy of this crate.
fn is_ours(handler: usize) -> bool {
    let (mut code, mut mark) = ([0u8; jump::LEN], [0u8; MARK.len()]);
    let local = [code.as_mut_slice(), mark.as_mut_slice()].map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    });
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(handler),
        iov_len: jump::LEN + MARK.len(),
    };
    // SAFETY: the kernel writes only to `code` and `mark`, and fails if the handler is not
    // readable.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), local.as_ptr(), 2, &raw const remote, 1, 0)
    };
    read == remote.iov_len as isize && jump::is(code) && mark == *MARK
}

/// Installs the handler, unless the program handles or ignores the signal. Returns whether this
/// crate handles it.
pub(super) fn install(signo: u32) -> bool {
    let Ok(signo) = libc::c_int::try_from(signo) else {
        return false;
    };
    let own = marked as extern "C" fn(libc::c_int) as usize;
    // SAFETY: zeros are a valid sigaction, and `on_update` is async-signal-safe: it neither
    // allocates nor waits, and preserves errno.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signo, null(), &raw mut action) != 0 {
            return false;
        }
        match action.sa_sigaction {
            libc::SIG_DFL => {}
            handler if handler == own => return true,
            libc::SIG_IGN => return false,
            handler if is_ours(handler) => OTHER.store(handler, Ordering::Relaxed),
            _ => return false,
        }
        action.sa_sigaction = own;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signo, &raw const action, null_mut()) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count(_: libc::c_int) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }

    /// The handler of another copy of this crate.
    #[unsafe(naked)]
    extern "C" fn another_copy(_: libc::c_int) {
        std::arch::naked_asm!(jump::to!(), ".ascii \"usertrace update\"", to = sym count)
    }

    fn handler(signo: libc::c_int) -> usize {
        // SAFETY: reads a disposition.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signo, null(), &raw mut action);
            action.sa_sigaction
        }
    }

    /// One test, because there is one `OTHER`.
    #[test]
    fn other_handlers_stay_and_other_copies_are_called() {
        let own = marked as extern "C" fn(libc::c_int) as usize;
        let set = |signo, handler: usize| {
            // SAFETY: handlers that only count.
            unsafe { libc::signal(signo, handler) };
        };
        let [free, foreign, ignored, copy] = [0, 1, 2, 3].map(|n| libc::SIGRTMIN() + 8 + n);

        assert!(install(free as u32));
        assert!(install(free as u32));
        assert_eq!((handler(free), OTHER.load(Ordering::Relaxed)), (own, 0));

        let count = count as extern "C" fn(libc::c_int) as usize;
        set(foreign, count);
        assert!(!install(foreign as u32));
        assert_eq!(handler(foreign), count);

        set(ignored, libc::SIG_IGN);
        assert!(!install(ignored as u32));
        assert_eq!(handler(ignored), libc::SIG_IGN);

        assert!(!install(libc::SIGKILL as u32));
        assert!(!install(u32::MAX));

        set(copy, another_copy as extern "C" fn(libc::c_int) as usize);
        assert!(install(copy as u32));
        assert_eq!(handler(copy), own);
        // SAFETY: the handler is `marked`.
        unsafe { libc::raise(copy) };
        assert_eq!(SEEN.load(Ordering::Relaxed), 1);
    }
}
