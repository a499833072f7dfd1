//! Where in the program an event is: for the context `ip`.
//!
//! An event notes it before it is written, in a word of its thread, if a trace wants to know. A
//! signal handler that comes in between may have events, too; so the word says which event it is
//! about, as far as it has room for that.

use super::Callsite;
use super::callsite::HERE;
use crate::writer;

/// Bits of the word that say whose address is above them. No program has addresses that are longer
/// than the rest, unless it asks for them.
const EVENT_BITS: u32 = 16;

/// Notes the address at which this is, in the function that it is inlined into, if the event's mask
/// says so.
#[doc(hidden)]
#[inline(always)]
pub fn here(callsite: &Callsite, mask: u32) {
    if mask & HERE == 0 {
        return;
    }
    let ip: usize;
    // SAFETY: an address, and nothing else.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("lea {}, [rip]", out(reg) ip, options(pure, nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("adr {}, .", out(reg) ip, options(pure, nomem, nostack, preserves_flags));
    }
    note(callsite, ip);
}

/// Notes the address that an event is said to be at, if the event's mask says so.
#[doc(hidden)]
#[inline(always)]
pub fn here_at(callsite: &Callsite, mask: u32, ip: usize) {
    if mask & HERE != 0 {
        note(callsite, ip);
    }
}

/// Notes the address of an event that is about to be written.
#[doc(hidden)]
#[cold]
#[inline(never)]
pub fn note(callsite: &Callsite, ip: usize) {
    writer::set_here((ip as u64) << EVENT_BITS | tag(callsite));
}

/// The address that was noted of an event; 0 if it is not known.
pub(crate) fn noted(callsite: &Callsite) -> usize {
    let word = writer::get_here();
    if word & ((1 << EVENT_BITS) - 1) == tag(callsite) {
        (word >> EVENT_BITS) as usize
    } else {
        0
    }
}

/// What tells an event from others, mostly.
fn tag(callsite: &Callsite) -> u64 {
    // Callsites lie at multiples of their size or so.
    let address = std::ptr::from_ref(callsite).addr() as u64 / align_of::<Callsite>() as u64;
    address & ((1 << EVENT_BITS) - 1)
}
