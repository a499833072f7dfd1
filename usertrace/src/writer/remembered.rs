//! Cached contexts of a thread. The writer stores them with the thread's slot in
//! [`Readers`](super::Readers), and never looks at them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::thread;

/// Contexts that a thread caches, as each costs a system call. Zeros are valid: nothing is cached.
///
/// A signal handler may interrupt the thread while it fills them in, and stores the same values.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Remembered {
    /// The process's stamp when the thread asked the kernel, and which fields it asked for.
    pub(crate) stamp: AtomicU64,
    /// The process id, and in the upper half the thread id.
    pub(crate) numbers: AtomicU64,
    /// The thread's name.
    pub(crate) name: [AtomicU64; Self::NAME_LEN / 8],
    /// Inode numbers of namespaces: two in each word, the first one in the lower half.
    pub(crate) namespaces: [AtomicU64; Self::NAMESPACES / 2],
    /// The stack that the thread had last: its lowest known address, and its end.
    pub(crate) stack: [AtomicU64; 2],
}

impl Remembered {
    /// Length of a thread's name.
    pub(crate) const NAME_LEN: usize = thread::NAME_LEN;
    /// Number of kinds of namespaces.
    pub(crate) const NAMESPACES: usize = 8;

    /// Empties the cache, for the calling thread, which takes it from a thread that ended.
    pub(crate) fn forget(&self) {
        self.stamp.store(0, Ordering::Relaxed);
        self.stack[1].store(0, Ordering::Relaxed);
        self.stack[0].store(0, Ordering::Relaxed);
    }
}
