//! Atomic words of a ring that one thread alone writes.
//!
//! Only signal handlers of the same thread come between its instructions, and never within one. So
//! the compare-exchange and the addition need not exclude other processors: without the lock prefix
//! of x86 they cost a tenth, and do not wait until all earlier stores are in the cache. Readers on
//! other processors see stores in program order, as always on x86. Linux has the same for per-CPU
//! data: `local_t`. Other architectures have no such instructions, and use normal atomics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::protocol::Word;

/// A word that one thread alone writes.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct LocalAtomic(AtomicU64);

impl Word for LocalAtomic {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        let found: u64;
        // SAFETY: one instruction, on a valid and aligned word. The compiler moves no memory access
        // across it. The processor moves no later access before its load and no earlier access
        // behind its store: acquire and release.
        unsafe {
            std::arch::asm!(
                "cmpxchg qword ptr [{word}], {new}",
                word = in(reg) self.0.as_ptr(),
                new = in(reg) new,
                inout("rax") current => found,
                options(nostack),
            );
        }
        if found == current {
            Ok(found)
        } else {
            Err(found)
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        let before: u64;
        // SAFETY: as in `compare_exchange`.
        unsafe {
            std::arch::asm!(
                "xadd qword ptr [{word}], {value}",
                word = in(reg) self.0.as_ptr(),
                value = inout(reg) value => before,
                options(nostack),
            );
        }
        before
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}
