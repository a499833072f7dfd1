//! Where the C library has its rseq area, on x86-64, and what it registers areas with.

use std::arch::asm;

/// What stands in front of each abort handler: glibc registers with it.
pub(in crate::writer::rseq) const SIGNATURE: u32 = 0x5305_3053;

/// The C library's `__rseq_offset` and `__rseq_size`; NULL where it does not have them.
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
