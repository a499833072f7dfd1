//! The ways to the long way of an event that remember where in the program it is: the address to which they return, as they
//! are called from where the event is written.

use std::arch::naked_asm;

use super::Callsite;
use super::record::{Fill, Outcome, write_four, write_made, write_words};

/// Goes on with a function that takes one more argument, that address, in this register.
macro_rules! with_return_address {
    ($inner:path, x86_64: $x86_64:literal, aarch64: $aarch64:literal) => {{
        #[cfg(target_arch = "x86_64")]
        naked_asm!(
            concat!("mov ", $x86_64, ", qword ptr [rsp]"),
            "jmp {inner}",
            inner = sym $inner,
        );
        #[cfg(target_arch = "aarch64")]
        naked_asm!(
            concat!("mov ", $aarch64, ", x30"),
            "b {inner}",
            inner = sym $inner,
        );
    }};
}

/// [`write_four`], from here.
#[unsafe(naked)]
pub(super) extern "C" fn four<const WORDS: usize>(
    callsite: &Callsite,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
) -> Outcome {
    with_return_address!(write_four::<WORDS>, x86_64: "r9", aarch64: "x5")
}

/// [`write_words`], from here.
///
/// # Safety
/// `words` must be as many words.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn words(
    callsite: &Callsite,
    words: *const u64,
    len: usize,
) -> Outcome {
    with_return_address!(write_words, x86_64: "rcx", aarch64: "x3")
}

/// [`write_made`], from here.
#[unsafe(naked)]
pub(super) extern "C" fn made(callsite: &Callsite, len: usize, fill: &Fill<'_>) -> Outcome {
    with_return_address!(write_made, x86_64: "rcx", aarch64: "x3")
}
