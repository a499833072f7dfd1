//! The address of the code that writes an event, for the context `ip`.
//!
//! If a trace wants the address, the event stores it in a word of its thread before it is written.
//! A signal handler that interrupts it may write events, too. So the word also identifies the
//! event, by as many bits as are free.

use super::Callsite;
use super::callsite::WANTS_IP;
use crate::writer;

/// Bits of the word that identify the event; the address is above them. User addresses fit into the
/// other 48 bits, unless a program asks for longer ones.
const EVENT_BITS: u32 = 16;

/// Stores the current address in the function that this is inlined into, if the event's mask asks
/// for it.
#[doc(hidden)]
#[inline(always)]
pub fn capture_ip(callsite: &Callsite, mask: u32) {
    if mask & WANTS_IP == 0 {
        return;
    }
    let ip: usize;
    // SAFETY: the instruction only loads the address of the next one.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("lea {}, [rip]", out(reg) ip, options(pure, nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("adr {}, .", out(reg) ip, options(pure, nomem, nostack, preserves_flags));
    }
    set_ip(callsite, ip);
}

/// Stores a given address for an event, if its mask asks for it.
#[doc(hidden)]
#[inline(always)]
pub fn use_ip(callsite: &Callsite, mask: u32, ip: usize) {
    if mask & WANTS_IP != 0 {
        set_ip(callsite, ip);
    }
}

/// Stores the address of an event that is about to be written.
#[doc(hidden)]
#[cold]
#[inline(never)]
pub fn set_ip(callsite: &Callsite, ip: usize) {
    writer::set_here((ip as u64) << EVENT_BITS | tag(callsite));
}

/// The address stored for an event; 0 if it is unknown.
pub(crate) fn ip_of(callsite: &Callsite) -> usize {
    let word = writer::get_here();
    if word & ((1 << EVENT_BITS) - 1) == tag(callsite) {
        (word >> EVENT_BITS) as usize
    } else {
        0
    }
}

/// A short hash that tells an event from most others.
fn tag(callsite: &Callsite) -> u64 {
    // Call sites are aligned, so the low bits carry no information.
    let address = std::ptr::from_ref(callsite).addr() as u64 / align_of::<Callsite>() as u64;
    address & ((1 << EVENT_BITS) - 1)
}
