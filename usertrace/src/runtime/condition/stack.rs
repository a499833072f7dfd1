//! A stack of its own for the compilation of conditions.
//!
//! An update may run on the alternate signal stack of a program, of which Rust's has 8 KiB. A
//! parser does not fit into the rest of that, at least in a debug build.

use std::ffi::c_void;

/// Memory for the stack. All zeros is valid.
#[derive(Debug)]
#[repr(C, align(16))]
pub(in crate::runtime) struct SpareStack([u8; Self::LEN]);

impl SpareStack {
    /// A debug build takes about 8 KiB.
    const LEN: usize = 64 << 10;

    /// Calls `body` on this stack.
    ///
    /// # Safety
    /// `stack` must point to a stack that no other code uses. All signals must be blocked: the
    /// kernel would take the alternate signal stack for unused.
    pub(in crate::runtime) unsafe fn run<F: FnMut()>(stack: *mut Self, body: &mut F) {
        extern "C" fn entry<F: FnMut()>(body: *mut c_void) {
            // SAFETY: `run` passes its exclusive reference.
            let body = unsafe { &mut *body.cast::<F>() };
            body();
        }
        let top = stack.wrapping_add(1).cast::<c_void>();
        let body = std::ptr::from_mut(body).cast::<c_void>();
        // SAFETY: `top` is the aligned end of memory that only this call uses (contract of this
        // function). `entry` returns, as a panic out of it aborts.
        unsafe { switch(top, entry::<F>, body) };
    }
}

/// Calls `entry` with `argument` on the stack that ends at `top`.
///
/// # Safety
/// `top` must be aligned to 16 bytes, and the memory below it unused.
#[cfg(target_arch = "x86_64")]
unsafe fn switch(top: *mut c_void, entry: extern "C" fn(*mut c_void), argument: *mut c_void) {
    // SAFETY: the function called preserves r12, which has the old stack pointer meanwhile.
    unsafe {
        std::arch::asm!(
            "xchg rsp, r12",
            "call {entry}",
            "mov rsp, r12",
            entry = in(reg) entry,
            inout("r12") top => _,
            in("rdi") argument,
            clobber_abi("C"),
        );
    }
}

/// Calls `entry` with `argument` on the stack that ends at `top`.
///
/// # Safety
/// `top` must be aligned to 16 bytes, and the memory below it unused.
#[cfg(target_arch = "aarch64")]
unsafe fn switch(top: *mut c_void, entry: extern "C" fn(*mut c_void), argument: *mut c_void) {
    // SAFETY: the function called preserves x20, which has the old stack pointer meanwhile.
    unsafe {
        std::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {entry}",
            "mov sp, x20",
            entry = in(reg) entry,
            top = in(reg) top,
            out("x20") _,
            in("x0") argument,
            clobber_abi("C"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_runs_on_the_other_stack() {
        let mut stack = Box::new(SpareStack([0; SpareStack::LEN]));
        let range = std::ptr::from_mut(&mut *stack).addr()..;
        let (mut address, mut sum) = (0, 0);
        let numbers = [1, 2, 3];
        // SAFETY: only this call uses the stack. A signal handler of the test's process uses no
        // alternate stack, apart from that of a fault.
        unsafe {
            SpareStack::run(&raw mut *stack, &mut || {
                let local = std::hint::black_box(7);
                address = std::ptr::from_ref(&local).addr();
                sum = numbers.iter().sum();
            });
        }
        assert!(range.contains(&address) && address - range.start < SpareStack::LEN);
        assert_eq!(sum, 6);
    }
}
