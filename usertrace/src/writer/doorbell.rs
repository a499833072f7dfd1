//! How writers wake a reader that sleeps until there is something to read.

use std::sync::atomic::{AtomicU32, Ordering};

/// Lies in memory that the writers and the reader share. All zeros: nobody sleeps, and the reader is there.
///
/// A writer makes a system call only if the reader sleeps, and at most one for each sub-buffer.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Doorbell {
    /// Grows each time that it is rung. The reader sleeps on it: a futex that processes share.
    pub rung: AtomicU32,
    /// Not 0: the reader sleeps, or is about to.
    pub sleeping: AtomicU32,
    /// Not 0: there is no reader, and nobody must wait for one.
    pub gone: AtomicU32,
    /// The reader's processes, as robust futexes: the kernel says here when one died. 0: it does not tell. Any of them
    /// replaces the other one.
    pub readers: [AtomicU32; 2],
}

impl Doorbell {
    /// There is no reader.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        self.gone.load(Ordering::Relaxed) != 0
            || self
                .readers
                .iter()
                .all(|reader| reader.load(Ordering::Relaxed) & libc::FUTEX_OWNER_DIED != 0)
    }

    /// Tells the reader that there is something. Async-signal-safe; leaves `errno` alone.
    pub fn ring(&self) {
        // SeqCst, as is all here: either the reader, which says that it sleeps before it looks at `rung` for the last
        // time, sees that it was rung, or this sees that it sleeps.
        self.rung.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) != 0 {
            wake(&self.rung, 1);
        }
    }
}

/// Wakes those who sleep on a futex that processes share.
pub fn wake(futex: &AtomicU32, at_most: u32) {
    // SAFETY: the kernel looks for who sleeps on the address, and does not touch the memory.
    unsafe {
        syscalls::raw::syscall3(
            syscalls::Sysno::futex as usize,
            futex.as_ptr() as usize,
            libc::FUTEX_WAKE as usize,
            at_most as usize,
        );
    }
}
