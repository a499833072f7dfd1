//! What each thread has: one small block of static thread-local storage.
//!
//! Rust's `thread_local!` may allocate when a thread, or a library that was loaded late, comes to
//! it for the first time. So the block is defined in assembly (`x86_64.rs`, `aarch64.rs`), and
//! addressed as the initial-exec model has it: by an offset from the thread pointer that is fixed
//! before the first instruction of the program or library runs. So it may be used from signal
//! handlers, from inside `malloc`, and in preloaded libraries.
//!
//! A library that is loaded by `dlopen` takes it from the small reserve that C libraries have for
//! such libraries, which it shares with all others of the process. All thread-local storage of that
//! library then comes from there, not the block alone. So the block has only what an event needs on
//! its fast path, and the rseq area, whose place must be the same in all threads. What contexts
//! remember of a thread is in [`super::quiescence`]. Code that is linked into programs has no
//! `thread_local!`, and no hash tables by the standard library's hasher, whose keys are
//! thread-local.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(super) use self::arch::{thread_offset, thread_pointer};
use super::ring_index::MAX_RINGS;

/// Bytes for the rseq area: what kernels of today know of it, and room for more.
pub(super) const RSEQ_LEN: usize = 64;

/// A bit that makes any CPU number one that no ring exists for: it is beyond [`MAX_RINGS`].
pub(super) const NO_CPU: u32 = MAX_RINGS;

/// A thread's block. What is not said to be otherwise starts as zeros.
///
/// All is atomic: signal handlers and the kernel come between any two instructions.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Thread {
    /// `struct rseq`, for threads whose C library registers none. The CPU number is -1 (as the
    /// kernel's `RSEQ_CPU_ID_UNINITIALIZED`) until it is registered. Of these fields only `rseq_cs`
    /// is ever written here.
    pub(super) rseq: [AtomicU32; RSEQ_LEN / 4],
    /// [`NO_CPU`], as long as a `vfork` child may be running on this thread's block. Sequences add
    /// it to the CPU number, and so come to no ring.
    pub(super) no_cpu: AtomicU32,
    /// Whether `rseq` is registered: what [`super::rseq::registration`] knows.
    pub(super) registration: AtomicU32,
    /// The rings that this thread has in channels with a ring for each thread: what
    /// [`super::reserve_commit`] knows.
    pub(super) rings: [AtomicU64; 4],
    /// Long records that this thread is in the middle of: not 0 in a signal handler that came then.
    pub(super) inside: AtomicU32,
    /// What [`super::quiescence`] knows.
    pub(super) reader_slot: AtomicU32,
    /// In which ring of the shared protocol this thread reserved last, and up to where: what
    /// [`super::reserve_commit`] knows.
    pub(super) reserved_to: AtomicU64,
    /// Where in the program the event is that is about to be written: what [`crate::event`] knows.
    here: AtomicU64,
}

const _: () = {
    // The definition in assembly relies on this.
    assert!(size_of::<Thread>() == 128);
    assert!(std::mem::offset_of!(Thread, no_cpu) == 64);
};

/// Calls `body` with the calling thread's block.
#[inline(always)]
pub(super) fn with<R>(body: impl FnOnce(&Thread) -> R) -> R {
    let block = thread_pointer().wrapping_offset(thread_offset());
    // SAFETY: each thread has the block at this offset, as long as it runs. It consists of atomic
    // integers.
    body(unsafe { &*block.cast::<Thread>() })
}

/// The thread runs, or may be running, on the block of its parent, of which the kernel knows
/// nothing.
pub(super) fn is_lent() -> bool {
    with(|thread| thread.no_cpu.load(Ordering::Relaxed) != 0)
}

/// Notes where the calling thread's next event is.
pub(crate) fn set_here(word: u64) {
    with(|thread| thread.here.store(word, Ordering::Relaxed));
}

/// What was noted last.
pub(crate) fn get_here() -> u64 {
    with(|thread| thread.here.load(Ordering::Relaxed))
}
