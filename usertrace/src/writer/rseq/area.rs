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

/// Whether the kernel stores `mm_cid` in registered areas. [`Rseq::find`] sets it.
pub(super) static HAS_MM_CID: AtomicBool = AtomicBool::new(false);

/// Offset of each thread's rseq area: proof that there is one.
///
/// `Option<Rseq>` is one word, with 0 for none. Without areas, all channels use the shared
/// protocol, and the event path calls its writer directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rseq {
    /// From the thread pointer. Never 0, where the thread's control block is.
    pub(super) offset: NonZeroIsize,
}

/// This process cannot use restartable sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RseqError {
    /// Another library than the C library registered an area for this thread, at an unknown
    /// address.
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
        // SAFETY: variables of the C library, constant since before the first constructor ran.
        let (offset, size) = unsafe { (*offset, *size) };
        // A size of 0: the kernel refused the area, or the user disabled it
        // (`glibc.pthread.rseq=0`).
        NonZeroIsize::new(offset)
            .filter(|_| size != 0)
            .map(|offset| Self { offset })
    }

    /// The thread block's area.
    pub(super) fn of_block() -> Option<Self> {
        NonZeroIsize::new(thread::thread_offset()).map(|offset| Self { offset })
    }

    /// Returns what makes the area of the calling thread's block look like one of a CPU. The kernel
    /// does not know it, so it aborts no sequence of the thread.
    #[cfg(test)]
    pub(in crate::writer) fn unregistered(cpu: u32) -> impl Fn() -> Self {
        move || {
            thread::with(|thread| {
                let index = CPU_ID as usize / 4;
                thread.rseq[index].store(cpu, Ordering::Relaxed);
            });
            Self::of_block().expect("a block")
        }
    }

    /// A number for a static variable, never 0.
    pub(crate) fn to_raw(self) -> isize {
        self.offset.get()
    }

    /// The inverse of [`Rseq::to_raw`]; none for 0.
    ///
    /// # Safety
    /// `raw` must be 0, or come from [`Rseq::to_raw`] in this process.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: isize) -> Option<Self> {
        NonZeroIsize::new(raw).map(|offset| Self { offset })
    }

    /// The CPU number in the thread's area; very large in an area that is not registered. A
    /// sequence finds out whether the thread may write there.
    #[inline(always)]
    pub(in crate::writer) fn cpu(self) -> u32 {
        let area = thread::thread_pointer().wrapping_offset(self.offset.get());
        let field = area.wrapping_add(CPU_ID as usize).cast::<AtomicU32>();
        // SAFETY: within the area, which each thread has at this offset, registered or not.
        unsafe { (*field).load(Ordering::Relaxed) }
    }

    /// Index of the ring that the thread could write to a moment ago: its CPU, or the field at
    /// `INDEX` of its area. No ring has the index if the thread may write to none. [`NO_INDEX`] if
    /// the thread has no registered area, or the area no such field.
    pub(in crate::writer) fn index<const INDEX: i32>(self) -> u32 {
        let area = thread::thread_pointer().wrapping_offset(self.offset.get());
        let field = |offset: i32| {
            let field = area.wrapping_add(offset as usize).cast::<AtomicU32>();
            // SAFETY: within the area, which each thread has at this offset, registered or not.
            unsafe { (*field).load(Ordering::Relaxed) }
        };
        // The CPU number of an area that is not registered is negative, its other fields are zeros.
        let registered = field(CPU_ID).cast_signed() >= 0;
        let index = if registered && (offset(INDEX) != MM_CID || has_mm_cid()) {
            field(offset(INDEX))
        } else {
            NO_INDEX
        };
        index | thread::with(|thread| thread.no_cpu.load(Ordering::Relaxed))
    }
}

/// Whether the kernel stores concurrency ids of threads in their areas. If not, all threads would
/// read the same id.
pub(crate) fn has_mm_cid() -> bool {
    HAS_MM_CID.load(Ordering::Relaxed)
}

/// Makes this process behave as on a kernel that does not store concurrency ids.
#[cfg(test)]
pub(in crate::writer) fn forget_mm_cid() {
    HAS_MM_CID.store(false, Ordering::Relaxed);
}
