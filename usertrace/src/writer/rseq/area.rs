//! Where each thread has its rseq area.

#[cfg_attr(target_arch = "x86_64", path = "library_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "library_aarch64.rs")]
mod library;

use std::num::NonZeroIsize;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(super) use self::library::SIGNATURE;
use self::library::library_area;
use crate::writer::ring_index::{CPU_ID, MM_CID, NO_INDEX, offset};
use crate::writer::thread;

/// `offsetof(struct rseq, rseq_cs)`
pub(super) const RSEQ_CS: i32 = 8;

/// The kernel keeps `mm_cid` of registered areas: [`Rseq::find`] looked.
pub(super) static HAS_MM_CID: AtomicBool = AtomicBool::new(false);

/// Where each thread's rseq area lies: proof that there is one.
///
/// `Option<Rseq>` is one word, 0 being none: with none, all channels are of the shared protocol,
/// and the event path goes to its writer directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rseq {
    /// From the thread pointer. Not 0: the thread's control block is there.
    pub(super) offset: NonZeroIsize,
}

/// There can be no restartable sequences in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RseqError {
    /// A library that is not the C library registered an area for this thread, so nobody can know
    /// where it is.
    Library,
    /// The kernel has no restartable sequences, or does not let this program use them.
    Kernel,
}

impl Rseq {
    /// The C library's area.
    pub(super) fn of_library() -> Option<Self> {
        let (offset, size) = library_area();
        if offset.is_null() || size.is_null() {
            return None;
        }
        // SAFETY: the C library's, constant since before the first constructor ran.
        let (offset, size) = unsafe { (*offset, *size) };
        // A size of 0: the kernel refused it, or the library was told not to try
        // (`glibc.pthread.rseq=0`).
        NonZeroIsize::new(offset)
            .filter(|_| size != 0)
            .map(|offset| Self { offset })
    }

    /// The thread block's area.
    pub(super) fn of_block() -> Option<Self> {
        NonZeroIsize::new(thread::thread_offset()).map(|offset| Self { offset })
    }

    /// As a number that a static can hold, never 0.
    pub(crate) fn to_raw(self) -> isize {
        self.offset.get()
    }

    /// Nothing is what 0 stands for.
    ///
    /// # Safety
    /// `raw` must be 0, or come from [`Rseq::to_raw`] in this process.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: isize) -> Option<Self> {
        NonZeroIsize::new(raw).map(|offset| Self { offset })
    }

    /// The ring that the thread could write to a moment ago: by its CPU, or by what else is at
    /// `INDEX` of its area. Not a ring's number if it has none: [`NO_INDEX`] if the thread has no
    /// registered area, or that no such field.
    pub(in crate::writer) fn index<const INDEX: i32>(self) -> u32 {
        let area = thread::thread_pointer().wrapping_offset(self.offset.get());
        let field = |offset: i32| {
            let field = area.wrapping_add(offset as usize).cast::<AtomicU32>();
            // SAFETY: `offset` is that of the area, which each thread has, registered or not.
            unsafe { (*field).load(Ordering::Relaxed) }
        };
        // That of an area that is not registered is negative, and its other fields are zeros.
        let registered = field(CPU_ID).cast_signed() >= 0;
        let index = if registered && (offset(INDEX) != MM_CID || has_mm_cid()) {
            field(offset(INDEX))
        } else {
            NO_INDEX
        };
        index | thread::with(|thread| thread.no_cpu.load(Ordering::Relaxed))
    }
}

/// The kernel keeps the concurrency ids of threads in their areas. Where it does not, all would
/// have the same one.
pub(crate) fn has_mm_cid() -> bool {
    HAS_MM_CID.load(Ordering::Relaxed)
}

/// As if the kernel did not.
#[cfg(test)]
pub(in crate::writer) fn forget_mm_cid() {
    HAS_MM_CID.store(false, Ordering::Relaxed);
}
