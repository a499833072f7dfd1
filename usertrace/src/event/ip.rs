//! The place in the program of an event, for the contexts `ip` and `callstack`: an address, and the
//! frame of the function there.
//!
//! If a trace wants the place, the event stores it in words of its thread before it is written. A
//! signal handler that interrupts it may write events, too. So one of the words also identifies the
//! event, by as many bits as are free.

use super::Callsite;
use super::callsite::WANTS_IP;
use crate::{unwind, writer};

/// Bits of the word that identify the event; the address is above them. User addresses fit into the
/// other 48 bits, unless a program asks for longer ones.
const EVENT_BITS: u32 = 16;
/// Alignment of a frame, as a power of two. The lower bits are not stored.
const FRAME_ALIGN: u32 = 3;
/// Bits of a stored frame that say what it is; the address is above them.
const KIND_BITS: u32 = 2;
const POINTER: u32 = 0;
const INSIDE: u32 = 1;
const BELOW: u32 = 2;

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

/// What is known of the frame of the function that an event is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The frame pointer there; anything in code that has none, and 0 if unknown. The event's
    /// address is a return address.
    Pointer(usize),
    /// The stack pointer there.
    Inside(usize),
    /// The stack pointer in a function that it called.
    Below(usize),
}

/// Where an event is, as its thread stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The address; 0: unknown.
    pub(crate) ip: usize,
    /// Lower bits of the address that [`Frame`] has, and its kind. All 0: unknown.
    frame: u32,
}

impl Place {
    pub(crate) fn new(ip: usize, frame: Frame) -> Self {
        Self {
            ip,
            frame: stored(frame),
        }
    }

    /// The frame, which is above `low` on the same stack.
    pub(crate) fn frame_above(self, low: usize) -> Frame {
        let low = low as u64 >> FRAME_ALIGN;
        let above = (self.frame >> KIND_BITS).wrapping_sub(low as u32) << KIND_BITS >> KIND_BITS;
        // One that is below is far above, and so on no stack.
        let address = ((low + u64::from(above)) << FRAME_ALIGN) as usize;
        match self.frame & ((1 << KIND_BITS) - 1) {
            INSIDE => Frame::Inside(address),
            BELOW => Frame::Below(address),
            _ if self.frame == 0 => Frame::Pointer(0),
            _ => Frame::Pointer(address),
        }
    }
}

/// The part of a frame that is stored.
fn stored(frame: Frame) -> u32 {
    let (address, kind) = match frame {
        Frame::Pointer(address) if !address.is_multiple_of(1 << FRAME_ALIGN) => return 0,
        Frame::Pointer(address) => (address, POINTER),
        Frame::Inside(address) => (address, INSIDE),
        Frame::Below(address) => (address, BELOW),
    };
    ((address >> FRAME_ALIGN) as u32) << KIND_BITS | kind
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
        set_caller(callsite, ip, frame);
    }
}

/// Stores the address of an event that is about to be written, and the frame of the function that
/// calls this.
#[doc(hidden)]
#[cold]
#[unsafe(naked)]
pub extern "C" fn set_ip(callsite: &Callsite, ip: usize) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "mov rdx, rbp",
        "lea rcx, [rsp + 8]",
        "jmp {set}",
        set = sym set_inside,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x2, x29", "mov x3, sp", "b {set}", set = sym set_inside);
}

/// Stores the address of an event that is about to be written, in the caller of the function that
/// calls this.
#[doc(hidden)]
#[cold]
#[unsafe(naked)]
pub extern "C" fn set_ip_of_caller(callsite: &Callsite, ip: usize) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "mov rdx, rbp",
        "lea rcx, [rsp + 8]",
        "jmp {set}",
        set = sym set_below,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x2, x29", "mov x3, sp", "b {set}", set = sym set_below);
}

extern "C" fn set_inside(callsite: &Callsite, ip: usize, frame: usize, stack_pointer: usize) {
    set(callsite, ip, frame, Frame::Inside(stack_pointer));
}

extern "C" fn set_below(callsite: &Callsite, ip: usize, frame: usize, stack_pointer: usize) {
    set(callsite, ip, frame, Frame::Below(stack_pointer));
}

fn set(callsite: &Callsite, ip: usize, frame_pointer: usize, by_tables: Frame) {
    let frame = match unwind::has_tables() {
        true => by_tables,
        false => Frame::Pointer(frame_pointer),
    };
    set_place(callsite, Place::new(ip, frame));
}

/// Stores a return address as the address of an event that is about to be written, and the frame
/// pointer there.
#[cold]
#[inline(never)]
extern "C" fn set_caller(callsite: &Callsite, ip: usize, frame: usize) {
    set_place(callsite, Place::new(ip, Frame::Pointer(frame)));
}

fn set_place(callsite: &Callsite, place: Place) {
    let word = (place.ip as u64) << EVENT_BITS | tag(callsite);
    writer::set_here(word, place.frame);
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
        let low = 0x7fff_ffff_0120;
        let above = |frame| Place::new(1, frame).frame_above(low);
        for address in [
            low,
            0x7fff_ffff_0128,
            0x7fff_ffff_f000,
            0x8000_0000_0010,
            low + 8 + (1 << 32),
        ] {
            for frame in [Frame::Pointer, Frame::Inside, Frame::Below] {
                assert_eq!(above(frame(address)), frame(address), "{address:#x}");
            }
        }
        for none in [0, 0x7fff_ffff_0129] {
            assert_eq!(above(Frame::Pointer(none)), Frame::Pointer(0));
        }
        assert_eq!(above(Frame::Inside(low + 4)), Frame::Inside(low));
        // Below: the next address with these bits.
        let below = Frame::Pointer(0x7fff_ffff_0008);
        assert_eq!(above(below), Frame::Pointer(0x7fff_ffff_0008 + (1 << 33)));
    }
}
