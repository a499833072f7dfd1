//! The thread block: a small piece of static thread-local storage.
//!
//! Rust's `thread_local!` may allocate at the first access of a thread, or in a library that was
//! loaded late. So the block is defined in assembly (`x86_64.rs`, `aarch64.rs`) and addressed by
//! the initial-exec model: by an offset from the thread pointer that is fixed before the first
//! instruction of the program or library runs. Signal handlers, `malloc` itself and preloaded
//! libraries may therefore use it.
//!
//! A library that `dlopen` loads takes it from a small reserve of the C library, which all such
//! libraries of the process share. All thread-local storage of that library then comes from there,
//! not the block alone. So the block has only what an event needs on its fast path, and the rseq
//! area, which must be at the same offset in all threads. Cached contexts of a thread are in
//! [`super::quiescence`]. Code that is linked into programs has no `thread_local!`, and no hash
//! tables with the standard library's hasher, whose keys are thread-local.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

pub(super) use self::arch::thread_offset;
pub(crate) use self::arch::thread_pointer;
use super::ring_index::MAX_RINGS;

/// Bytes of the rseq area: more than today's kernels use.
pub(super) const RSEQ_LEN: usize = 64;

/// A bit that makes any CPU number one without a ring: no ring has an index from [`MAX_RINGS`] on.
pub(super) const NO_CPU: u32 = MAX_RINGS;

/// A thread's block. Fields start as zeros unless their comment says otherwise.
///
/// All fields are atomic: signal handlers and the kernel access them between any two instructions.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Thread {
    /// `struct rseq`, for threads whose C library registers none. The CPU number is -1 (as the
    /// kernel's `RSEQ_CPU_ID_UNINITIALIZED`) until it is registered. The library stores only
    /// `rseq_cs`.
    pub(super) rseq: [AtomicU32; RSEQ_LEN / 4],
    /// [`NO_CPU`] as long as a `vfork` child may be running on this thread's block. Sequences add
    /// it to the CPU number, and so find no ring.
    pub(super) no_cpu: AtomicU32,
    /// Whether `rseq` is registered; see [`super::rseq::registration`].
    pub(super) registration: AtomicU16,
    /// Index of this thread's slot in [`super::Readers`], plus 1; 0: none.
    pub(super) reader_slot: AtomicU16,
    /// This thread's rings in channels with a ring for each thread; see [`super::reserve_commit`].
    pub(super) rings: [AtomicU64; 4],
    /// Number of long records that this thread is filling. Not 0 in a signal handler that
    /// interrupts one.
    pub(super) inside: AtomicU32,
    /// Frame of the event that is about to be written; see [`crate::event`].
    frame: AtomicU32,
    /// Ring of several threads in which this thread reserved last, and the position behind that;
    /// see [`super::reserve_commit`].
    pub(super) reserved_to: AtomicU64,
    /// Address of the event that is about to be written; see [`crate::event`].
    here: AtomicU64,
}

const _: () = {
    // The assembly that defines the block relies on this.
    assert!(size_of::<Thread>() == 128);
    assert!(std::mem::offset_of!(Thread, no_cpu) == 64);
};

/// Calls `body` with the calling thread's block.
#[inline(always)]
pub(super) fn with<R>(body: impl FnOnce(&Thread) -> R) -> R {
    let block = thread_pointer().wrapping_offset(thread_offset());
    // SAFETY: each thread has the block at this offset, as long as it runs. All of it is atomic.
    body(unsafe { &*block.cast::<Thread>() })
}

/// Whether a `vfork` child may be running on this block, its parent's.
pub(crate) fn is_lent() -> bool {
    with(|thread| thread.no_cpu.load(Ordering::Relaxed) != 0)
}

/// Stores the address and the frame of the calling thread's next event.
pub(crate) fn set_here(word: u64, frame: u32) {
    with(|thread| {
        // Relaxed: only the thread and its signal handlers access both. A handler in between stores
        // those of its own event, so they are stored again.
        loop {
            thread.frame.store(frame, Ordering::Relaxed);
            thread.here.store(word, Ordering::Relaxed);
            if thread.frame.load(Ordering::Relaxed) == frame {
                break;
            }
        }
    });
}

/// The address and the frame that [`set_here`] stored last.
pub(crate) fn get_here() -> (u64, u32) {
    with(|thread| {
        let frame = thread.frame.load(Ordering::Relaxed);
        (thread.here.load(Ordering::Relaxed), frame)
    })
}
