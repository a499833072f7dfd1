//! The thread block on x86-64, and `vfork`, whose child runs on its parent's.

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
            "mov {offset}, qword ptr [rip + usertrace_thread@GOTTPOFF]",
            offset = lateout(reg) offset,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

/// The thread pointer.
#[inline(always)]
pub(crate) fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: the first word of the thread's control block is its address, by the ABI.
    unsafe {
        asm!(
            "mov {pointer}, qword ptr fs:[0]",
            pointer = lateout(reg) pointer,
            options(pure, readonly, nostack, preserves_flags),
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
        "endbr64",
        // The child may overwrite the return address on the stack before the parent returns. The
        // kernel keeps registers for each of them: rdi, rsi and rdx outlive a system call.
        "pop rdi",
        "mov rdx, qword ptr [rip + usertrace_thread@GOTTPOFF]",
        "mov esi, dword ptr fs:[rdx + {NO_CPU_OFFSET}]",
        "mov dword ptr fs:[rdx + {NO_CPU_OFFSET}], {NO_CPU}",
        "mov eax, {VFORK}",
        "syscall",
        "test eax, eax",
        "jz 2f",
        "mov dword ptr fs:[rdx + {NO_CPU_OFFSET}], esi",
        "push rdi",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "2:",
        // The child shares the shadow stack, too, if there is one: not by `ret`, as its entry is
        // the parent's.
        "jmp rdi",
        "3:",
        "neg eax",
        "push rax",
        "call qword ptr [rip + __errno_location@GOTPCREL]",
        "pop rcx",
        "mov dword ptr [rax], ecx",
        "mov eax, -1",
        "ret",
        NO_CPU_OFFSET = const offset_of!(Thread, no_cpu),
        NO_CPU = const NO_CPU,
        VFORK = const libc::SYS_vfork,
    )
}
