//! The place in the program of an event, for the contexts `ip` and `callstack`: an address, and the
//! frame of the function there.
//!
//! If a trace wants the place, the event stores it in words of its thread before it is written. A
//! signal handler that interrupts it may write events, too. So one of the words also identifies the
//! event, by as many bits as are free.

use super::Callsite;
use super::callsite::WANTS_IP;
use crate::writer;

/// Bits of the word that identify the event; the address is above them. User addresses fit into the
/// other 48 bits, unless a program asks for longer ones.
const EVENT_BITS: u32 = 16;
/// Alignment of a frame, as a power of two. The lower bits are not stored.
const FRAME_ALIGN: u32 = 3;

/// A caller of the program, for [`event_at!`](crate::event_at!). A number is an address whose frame
/// is unknown.
///
/// In both ABIs, it is passed as two arguments.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Caller {
    /// The return address of its call.
    pub ip: usize,
    /// Its frame pointer. Anything, in code that has none.
    pub frame: usize,
}

impl From<usize> for Caller {
    #[inline(always)]
    fn from(ip: usize) -> Self {
        Self { ip, frame: 0 }
    }
}

/// Where an event is, as its thread stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The address; 0: unknown.
    pub(crate) ip: usize,
    /// The lower half of a frame pointer without the bits of its alignment; 0: unknown.
    frame: u32,
}

impl Place {
    pub(crate) fn new(ip: usize, frame: usize) -> Self {
        Self {
            ip,
            frame: half(frame),
        }
    }

    /// The frame pointer, which is above `low` on the same stack. 0 if there is none.
    pub(crate) fn frame_above(self, low: usize) -> usize {
        if self.frame == 0 {
            return 0;
        }
        let low = low as u64 >> FRAME_ALIGN;
        let above = self.frame.wrapping_sub(low as u32);
        // One that is below is far above, and so on no stack.
        ((low + u64::from(above)) << FRAME_ALIGN) as usize
    }
}

/// The part of a frame pointer that is stored; 0 if it is none.
fn half(frame: usize) -> u32 {
    let is_aligned = frame & ((1 << FRAME_ALIGN) - 1) == 0;
    if is_aligned {
        (frame >> FRAME_ALIGN) as u32
    } else {
        0
    }
}

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

/// Stores a given place for an event, if its mask asks for it.
#[doc(hidden)]
#[inline(always)]
pub fn use_ip(callsite: &Callsite, mask: u32, caller: impl Into<Caller>) {
    if mask & WANTS_IP != 0 {
        let Caller { ip, frame } = caller.into();
        set_place(callsite, ip, frame);
    }
}

/// Stores the address of an event that is about to be written, and the frame pointer of the
/// function that calls this.
#[doc(hidden)]
#[cold]
#[unsafe(naked)]
pub extern "C" fn set_ip(callsite: &Callsite, ip: usize) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rdx, rbp", "jmp {set_place}", set_place = sym set_place);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x2, x29", "b {set_place}", set_place = sym set_place);
}

/// Stores the address of an event that is about to be written, and the frame pointer there.
#[cold]
#[inline(never)]
extern "C" fn set_place(callsite: &Callsite, ip: usize, frame: usize) {
    let word = (ip as u64) << EVENT_BITS | tag(callsite);
    writer::set_here(word, half(frame));
}

/// The address stored for an event; 0 if it is unknown.
pub(crate) fn ip_of(callsite: &Callsite) -> usize {
    place_of(callsite).ip
}

/// The place stored for an event.
pub(crate) fn place_of(callsite: &Callsite) -> Place {
    let (word, frame) = writer::get_here();
    if word & ((1 << EVENT_BITS) - 1) == tag(callsite) {
        let ip = (word >> EVENT_BITS) as usize;
        Place { ip, frame }
    } else {
        Place { ip: 0, frame: 0 }
    }
}

/// A short hash that tells an event from most others.
fn tag(callsite: &Callsite) -> u64 {
    // Call sites are aligned, so the low bits carry no information.
    let address = std::ptr::from_ref(callsite).addr() as u64 / align_of::<Callsite>() as u64;
    address & ((1 << EVENT_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_above() {
        let frame_of = |frame: usize, low| Place::new(1, frame).frame_above(low);
        let low = 0x7fff_ffff_0123;
        for frame in [
            0x7fff_ffff_0128,
            0x7fff_ffff_f000,
            0x8000_0000_0010,
            low + 5 + (1 << 33),
        ] {
            assert_eq!(frame_of(frame, low), frame, "{frame:#x}");
        }
        for none in [0, 0x7fff_ffff_0129] {
            assert_eq!(frame_of(none, low), 0);
        }
        // Below: the next address with these bits.
        assert_eq!(
            frame_of(0x7fff_ffff_0008, low),
            0x7fff_ffff_0008 + (1 << 35)
        );
    }
}
