//! The thread block on aarch64, and `vfork`, whose child runs on its parent's.

use std::arch::{asm, global_asm, naked_asm};
use std::mem::offset_of;

use super::{NO_CPU, RSEQ_LEN, Thread};

global_asm!(
    ".pushsection .tdata.usertrace_thread, \"awT\", @progbits",
    ".balign 64",
    ".hidden usertrace_thread",
    ".globl usertrace_thread",
    ".type usertrace_thread, @tls_object",
    ".size usertrace_thread, {SIZE}",
    "usertrace_thread:",
    ".long 0, -1",
    ".zero {SIZE} - 8",
    ".popsection",
    SIZE = const size_of::<Thread>(),
);

const _: () = assert!(offset_of!(Thread, rseq) == 0 && RSEQ_LEN >= 8);

/// Offset of the thread block from the thread pointer.
#[inline(always)]
pub(in crate::writer) fn thread_offset() -> isize {
    let offset: isize;
    // SAFETY: reads an entry of the global offset table, a constant.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:usertrace_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:usertrace_thread]",
            offset = out(reg) offset,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

/// The thread pointer.
#[inline(always)]
pub(crate) fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: reads a register.
    unsafe {
        asm!(
            "mrs {pointer}, tpidr_el0",
            pointer = lateout(reg) pointer,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    pointer
}

/// `vfork`, which marks the thread's block as lent while the child runs.
///
/// The child runs on the parent's stack and thread block. It must not write records by sequences:
/// the kernel has no rseq area of the child, so it neither restarts the child's sequences nor
/// stores its CPU. When the child has executed another program, exited, or was killed, the parent
/// goes on and restores the mark. If the parent is itself a `vfork` child, that is still set.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork() -> libc::pid_t {
    naked_asm!(
        // `bti c`, where there is such a thing.
        "hint #34",
        // A system call leaves all registers but x0 alone, and the kernel keeps them for each of
        // the two.
        "mrs x9, tpidr_el0",
        "adrp x10, :gottprel:usertrace_thread",
        "ldr x10, [x10, :gottprel_lo12:usertrace_thread]",
        "add x9, x9, x10",
        "ldr w10, [x9, {NO_CPU_OFFSET}]",
        "mov w11, {NO_CPU}",
        "str w11, [x9, {NO_CPU_OFFSET}]",
        "mov x0, {FLAGS}",
        "mov x1, sp",
        "mov x8, {CLONE}",
        "svc #0",
        "cbz x0, 2f",
        "str w10, [x9, {NO_CPU_OFFSET}]",
        "cmn x0, #4095",
        "b.hs 3f",
        "2:",
        "ret",
        "3:",
        "neg w0, w0",
        "stp x0, x30, [sp, #-16]!",
        "bl __errno_location",
        "ldp x1, x30, [sp], #16",
        "str w1, [x0]",
        "mov w0, #-1",
        "ret",
        NO_CPU_OFFSET = const offset_of!(Thread, no_cpu),
        NO_CPU = const NO_CPU,
        FLAGS = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        CLONE = const libc::SYS_clone,
    )
}
