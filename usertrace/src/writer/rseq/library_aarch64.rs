//! Where the C library has its rseq area, on aarch64, and what it registers areas with.

use std::arch::asm;

/// What stands in front of each abort handler: glibc registers with it. It is `brk #0x45e0`.
pub(in crate::writer::rseq) const SIGNATURE: u32 = 0xd428_bc00;

/// The C library's `__rseq_offset` and `__rseq_size`; NULL where it does not have them.
pub(super) fn library_area() -> (*const isize, *const u32) {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two entries of the global offset table. The symbols are weak.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "adrp {offset}, :got:__rseq_offset",
            "ldr {offset}, [{offset}, :got_lo12:__rseq_offset]",
            "adrp {size}, :got:__rseq_size",
            "ldr {size}, [{size}, :got_lo12:__rseq_size]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    (offset, size)
}
