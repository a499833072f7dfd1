//! The clock of the traces.

/// Reads the processor's counter that time stamps are made of.
///
/// It is the same one that the kernel names in `ltt_info.clock`; no conversion, no system call.
#[inline(always)]
#[must_use]
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. Linux can forbid it to a process (PR_SET_TSC), which then
    // gets a signal; such a process cannot be traced, and does not come here.
    unsafe { core::arch::x86_64::_rdtsc() }
}
