//! The C library's rseq area, and its signature, on aarch64.

use std::arch::asm;

/// The word in front of each abort handler, with which glibc registers its areas. It is `brk
/// #0x45e0`.
pub(in crate::writer::rseq) const SIGNATURE: u32 = 0xd428_bc00;

/// Addresses of the C library's `__rseq_offset` and `__rseq_size`; NULL if it does not have them.
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
