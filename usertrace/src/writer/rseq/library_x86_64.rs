//! The C library's rseq area, and its signature, on x86-64.

use std::arch::asm;

/// The word in front of each abort handler, with which glibc registers its areas.
pub(in crate::writer::rseq) const SIGNATURE: u32 = 0x5305_3053;

/// Addresses of the C library's `__rseq_offset` and `__rseq_size`; NULL if it does not have them.
pub(super) fn library_area() -> (*const isize, *const u32) {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two entries of the global offset table. The symbols are weak.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    (offset, size)
}
