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
const CALLER: u32 = 3;
/// Bits of the stack pointer in a frame of the kind `CALLER`; the rest is the distance of the frame
/// pointer from there, all ones if it does not fit.
const CALLER_BITS: u32 = 13;
const FAR: u32 = u32::MAX >> (KIND_BITS + CALLER_BITS);

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

/// The place of an event, for [`event_at!`](crate::event_at!).
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenPlace {
    /// A caller, with its stack.
    Caller(Caller),
    /// An address. The event's call stack has no other one.
    Address(usize),
}

impl<T: Into<Caller>> From<T> for GivenPlace {
    #[inline(always)]
    fn from(caller: T) -> Self {
        Self::Caller(caller.into())
    }
}

/// What is known of the frame of the function that an event is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The frame pointer there; anything in code that has none, and 0 if unknown.
    Pointer(usize),
    /// The stack pointer there.
    Inside(usize),
    /// The stack pointer in a function that it called.
    Below(usize),
    /// The event's address is where a function of the library returns to.
    Caller {
        /// The stack pointer in that function, which is at most 64 KiB above the walk's.
        stack_pointer: usize,
        /// The frame pointer in its caller: none if it leads nowhere near.
        frame_pointer: Option<usize>,
    },
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
        if let Some((stack_pointer, frame_pointer)) = self.caller_above(low) {
            return Frame::Caller {
                stack_pointer,
                frame_pointer,
            };
        }
        let whole = || address_above(low, self.frame >> KIND_BITS, u32::BITS - KIND_BITS);
        match self.kind() {
            INSIDE => Frame::Inside(whole()),
            BELOW => Frame::Below(whole()),
            _ if self.frame == 0 => Frame::Pointer(0),
            _ => Frame::Pointer(whole()),
        }
    }

    /// The stack pointer and the frame pointer of a [`Frame::Caller`], if it is one.
    #[inline(always)]
    pub(crate) fn caller_above(self, low: usize) -> Option<(usize, Option<usize>)> {
        if self.kind() != CALLER {
            return None;
        }
        let value = self.frame >> KIND_BITS;
        let stack_pointer = address_above(low, value, CALLER_BITS);
        let distance = value >> CALLER_BITS;
        let frame_pointer = stack_pointer + ((distance as usize) << FRAME_ALIGN);
        Some((stack_pointer, (distance != FAR).then_some(frame_pointer)))
    }

    /// Whether the address and something of its frame are known.
    #[inline(always)]
    pub(crate) fn has_frame(self) -> bool {
        self.ip != 0 && self.frame != 0
    }

    fn kind(self) -> u32 {
        self.frame & ((1 << KIND_BITS) - 1)
    }
}

/// The first address from `low` on that ends with these bits of a frame. One that is below `low` is
/// far above it, and so on no stack.
#[inline(always)]
fn address_above(low: usize, value: u32, bits: u32) -> usize {
    let low = low as u64 >> FRAME_ALIGN;
    let above = value.wrapping_sub(low as u32) & (u32::MAX >> (u32::BITS - bits));
    ((low + u64::from(above)) << FRAME_ALIGN) as usize
}

/// The part of a frame that is stored.
fn stored(frame: Frame) -> u32 {
    let (value, kind) = match frame {
        Frame::Pointer(address) if !address.is_multiple_of(1 << FRAME_ALIGN) => return 0,
        Frame::Pointer(address) => ((address >> FRAME_ALIGN) as u32, POINTER),
        Frame::Inside(address) => ((address >> FRAME_ALIGN) as u32, INSIDE),
        Frame::Below(address) => ((address >> FRAME_ALIGN) as u32, BELOW),
        Frame::Caller {
            stack_pointer,
            frame_pointer,
        } => {
            let distance = frame_pointer.map_or(usize::MAX, |frame| {
                frame.wrapping_sub(stack_pointer).rotate_right(FRAME_ALIGN)
            });
            // Bits of the alignment make it far.
            let distance = u32::try_from(distance).map_or(FAR, |distance| distance.min(FAR));
            let low = (stack_pointer >> FRAME_ALIGN) as u32 & ((1 << CALLER_BITS) - 1);
            (low | distance << CALLER_BITS, CALLER)
        }
    };
    value << KIND_BITS | kind
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
pub fn use_ip(callsite: &Callsite, mask: u32, place: impl Into<GivenPlace>) {
    if mask & WANTS_IP != 0 {
        match place.into() {
            GivenPlace::Caller(Caller { ip, frame }) => set_caller(callsite, ip, frame),
            GivenPlace::Address(ip) => set_address(callsite, ip),
        }
    }
}

/// All of a naked function: goes on with another one, whose further arguments are the caller's
/// frame pointer and stack pointer.
macro_rules! go_on_with_registers {
    ($function:ident) => {{
        #[cfg(target_arch = "x86_64")]
        std::arch::naked_asm!(
            "mov rdx, rbp",
            "lea rcx, [rsp + 8]",
            "jmp {}",
            sym $function,
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::naked_asm!("mov x2, x29", "mov x3, sp", "b {}", sym $function);
    }};
}

/// Stores the address of an event that is about to be written, and the frame of the function that
/// calls this.
#[doc(hidden)]
#[cold]
#[unsafe(naked)]
pub extern "C" fn set_ip(callsite: &Callsite, ip: usize) {
    go_on_with_registers!(set_inside);
}

/// Stores the address of an event that is about to be written, in the caller of the function that
/// calls this.
#[doc(hidden)]
#[cold]
#[unsafe(naked)]
pub extern "C" fn set_ip_of_caller(callsite: &Callsite, ip: usize) {
    go_on_with_registers!(set_below);
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

/// Stores a return address of the function that calls this as the address of an event, and the
/// frame pointer that its caller had.
#[cold]
#[unsafe(naked)]
extern "C" fn set_caller(callsite: &Callsite, ip: usize, frame: usize) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("lea rcx, [rsp + 8]", "jmp {set}", set = sym set_above);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x3, sp", "b {set}", set = sym set_above);
}

/// Stores the address of an event, which is all of its stack.
#[cold]
extern "C" fn set_address(callsite: &Callsite, ip: usize) {
    set_place(callsite, Place { ip, frame: 0 });
}

extern "C" fn set_above(callsite: &Callsite, ip: usize, frame: usize, stack_pointer: usize) {
    let by_tables = Frame::Caller {
        stack_pointer,
        frame_pointer: (frame != 0).then_some(frame),
    };
    set(callsite, ip, frame, by_tables);
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
        let caller = |stack_pointer, frame_pointer| Frame::Caller {
            stack_pointer,
            frame_pointer,
        };
        for stack_pointer in [low, low + 8, low + 65528] {
            for distance in [0, 8, 4096, 8 * (FAR as usize - 1)] {
                let caller = caller(stack_pointer, Some(stack_pointer + distance));
                assert_eq!(above(caller), caller);
            }
            for far in [
                0,
                1,
                low - 8,
                stack_pointer + 8 * FAR as usize,
                low + 1,
                usize::MAX,
            ] {
                let far = caller(stack_pointer, Some(far));
                assert_eq!(above(far), caller(stack_pointer, None), "{far:x?}");
            }
        }
        // Below: the next address with these bits.
        let below = Frame::Pointer(0x7fff_ffff_0008);
        assert_eq!(above(below), Frame::Pointer(0x7fff_ffff_0008 + (1 << 33)));
    }
}
