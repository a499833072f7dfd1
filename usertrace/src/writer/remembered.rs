//! What contexts remember of a thread. The writer keeps it with the place of the thread, and never
//! looks at it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::thread;

/// What a thread remembers of itself: asking costs a system call each. Zeros are a value: it
/// remembers nothing.
///
/// A signal handler may come in the middle, and put the same there.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Remembered {
    /// Of the process when it asked, and which of the rest it asked for.
    pub(crate) stamp: AtomicU64,
    /// The process, and above it the thread.
    pub(crate) numbers: AtomicU64,
    pub(crate) name: [AtomicU64; Self::NAME_LEN / 8],
    /// Two in each word, the first one below.
    pub(crate) namespaces: [AtomicU64; Self::NAMESPACES / 2],
}

impl Remembered {
    /// Length of a thread's name, as the kernel has it.
    pub(crate) const NAME_LEN: usize = thread::NAME_LEN;
    /// Kinds of namespaces.
    pub(crate) const NAMESPACES: usize = 8;

    /// Makes it that of another thread, which is the calling one.
    pub(crate) fn forget(&self) {
        self.stamp.store(0, Ordering::Relaxed);
    }
}
