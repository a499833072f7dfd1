//! Futexes in memory that processes share, and robust lists.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use syscalls::{Sysno, raw};

/// Wakes up to `at_most` threads, of any process, that sleep on a futex.
///
/// Async-signal-safe; leaves `errno` alone.
#[inline]
pub(crate) fn wake(futex: &AtomicU32, at_most: u32) {
    // SAFETY: the kernel uses the address as a key, and does not access the memory.
    unsafe {
        raw::syscall3(
            Sysno::futex as usize,
            futex.as_ptr() as usize,
            libc::FUTEX_WAKE as usize,
            at_most as usize,
        );
    }
}

/// Sleeps on a futex as long as it has this value, until a wakeup, a signal, or the timeout.
///
/// Returns early without a reason, too: the caller looks at the memory again. Async-signal-safe;
/// leaves `errno` alone.
#[inline]
pub(crate) fn wait(futex: &AtomicU32, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(super::time::timespec);
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads the futex and the timeout, which both outlive the call, and writes
    // nothing.
    unsafe {
        raw::syscall4(
            Sysno::futex as usize,
            futex.as_ptr() as usize,
            libc::FUTEX_WAIT as usize,
            value as usize,
            timeout as usize,
        );
    }
}

/// A robust list (`struct robust_list_head`) with one element.
///
/// The element is not the futex: the kernel adds an offset to its address, so the futex may lie in
/// another mapping.
#[cfg(feature = "fallback")]
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RobustList {
    next: *const *const Self,
    offset: isize,
    pending: usize,
    /// The element: points back to the list.
    element: *const Self,
}

#[cfg(feature = "fallback")]
impl RobustList {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            next: std::ptr::null(),
            offset: 0,
            pending: 0,
            element: std::ptr::null(),
        }
    }

    /// Makes the kernel set `FUTEX_OWNER_DIED` in `word` when the calling thread ends, if `word`
    /// then contains the thread's id (`set_robust_list`).
    ///
    /// Replaces the list that the C library registered for robust mutexes. Async-signal-safe;
    /// leaves `errno` alone.
    pub(crate) fn register(&'static mut self, word: &'static AtomicU32) {
        self.next = &raw const self.element;
        self.element = self;
        self.offset = (word.as_ptr() as isize).wrapping_sub(self.next as isize);
        // SAFETY: the list lives for ever and does not change any more. At the thread's end, the
        // kernel reads it, and writes to `word` alone, which lives for ever, too.
        unsafe {
            raw::syscall2(
                Sysno::set_robust_list as usize,
                std::ptr::from_mut(self) as usize,
                std::mem::offset_of!(Self, element),
            );
        }
    }
}
