//! Functions that call `realloc` and `free` under other names. They jump to the program's functions
//! with the caller's stack in place, so these return to the caller and see it as such.

use std::arch::naked_asm;
use std::ffi::c_void;

use usertrace_next::Next;

use crate::next::first::statics;

/// `reallocarray`, by the program's `realloc`, as in the C library. A program that replaces
/// `realloc` need not replace this one. If it does, its calls of `reallocarray` make no event.
///
/// # Safety
/// As for the C library's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn reallocarray(
    in_ptr: *mut c_void,
    nmemb: usize,
    size: usize,
) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov rax, rdx",
        "mul rsi",
        "jo 2f",
        "mov rsi, rax",
        "jmp [rip + {realloc} + {address}]",
        "2: jmp {too_long}",
        realloc = sym statics::realloc,
        address = const Next::ADDRESS,
        too_long = sym too_long,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "umulh x3, x1, x2",
        "cbnz x3, 2f",
        "mul x1, x1, x2",
        "adrp x16, {realloc}",
        "add x16, x16, :lo12:{realloc}",
        "ldr x16, [x16, #{address}]",
        "br x16",
        "2: b {too_long}",
        realloc = sym statics::realloc,
        address = const Next::ADDRESS,
        too_long = sym too_long,
    );
}

/// The result of a product of sizes that overflows.
unsafe extern "C-unwind" fn too_long() -> *mut c_void {
    // SAFETY: `__errno_location` returns the thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    std::ptr::null_mut()
}

/// Defines functions that C23 defines by `free`, with the same first argument.
macro_rules! by_free {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, by the program's `free`.")]
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "jmp [rip + {free} + {address}]",
                free = sym statics::free,
                address = const Next::ADDRESS,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "adrp x16, {free}",
                "add x16, x16, :lo12:{free}",
                "ldr x16, [x16, #{address}]",
                "br x16",
                free = sym statics::free,
                address = const Next::ADDRESS,
            );
        }
    )*};
}

by_free! {
    free_sized(ptr: *mut c_void, size: usize);
    free_aligned_sized(ptr: *mut c_void, alignment: usize, size: usize);
}
