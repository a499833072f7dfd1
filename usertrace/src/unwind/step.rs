//! How a frame followed from that of the function that it called, in words that can be stored.

use std::sync::atomic::{AtomicU64, Ordering};

use super::known_memory::WORD;

const WORDS: usize = 4;

/// Bits of a frame's first word; its address is below them.
pub(super) const BY_FRAME: u64 = 1 << 63;
pub(super) const VERIFIABLE: u64 = 1 << 62;
/// Addresses have this many bits. In a frame's second word, the rest says how many words below the
/// stack pointer the frame pointer was saved; 0: it was not.
pub(super) const ADDRESS_BITS: u32 = 48;
pub(super) const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
pub(super) const MAX_BELOW: u64 = u64::MAX >> ADDRESS_BITS;

/// The words of a [`Step`]. Relaxed: only one thread and its signal handlers use them.
pub(super) type Frame = [AtomicU64; WORDS];

/// A frame, and how it followed from that of the function that it called, as words: its address
/// with bits; its stack pointer, and how far below its frame pointer had been saved; the frame
/// pointer that was saved; and the one that it was found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step([u64; WORDS]);

impl Step {
    /// A frame that words of the stack cannot tell.
    pub(super) fn untold(ip: usize, stack_pointer: usize) -> Self {
        Self([ip as u64 & ADDRESS, stack_pointer as u64 & ADDRESS, 0, 0])
    }

    /// A frame whose address was right below its stack pointer. `saved` is the frame pointer's
    /// place, in words from the stack pointer, and its value; none if it had not changed.
    /// `by_frame` is the frame pointer that it was found by; none if it was by the stack pointer.
    #[inline(always)]
    pub(super) fn told(
        ip: usize,
        stack_pointer: usize,
        saved: Option<(isize, usize)>,
        by_frame: Option<usize>,
    ) -> Self {
        let below = saved.map_or(0, |(offset, _)| offset.wrapping_neg() as u64);
        let is_below = below <= MAX_BELOW && (below != 0 || saved.is_none());
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        Self([
            ip as u64 & ADDRESS | flag(by_frame.is_some(), BY_FRAME) | flag(is_below, VERIFIABLE),
            stack_pointer as u64 & ADDRESS | below << ADDRESS_BITS,
            saved.map_or(0, |(_, value)| value as u64),
            by_frame.unwrap_or(0) as u64,
        ])
    }

    /// The one that was stored.
    pub(super) fn load(frame: &Frame) -> Self {
        Self([0, 1, 2, 3].map(|at| frame[at].load(Ordering::Relaxed)))
    }

    /// Whether words of the stack tell it.
    pub(super) fn is_verifiable(self) -> bool {
        self.0[0] & VERIFIABLE != 0
    }

    /// Where the frame pointer had been saved, and its value, if words of the stack tell the frame.
    pub(super) fn saved(self) -> Option<(usize, usize)> {
        let below = (self.0[1] >> ADDRESS_BITS) as usize;
        let place = (self.stack_pointer() as usize).wrapping_sub(below * WORD);
        (below != 0).then_some((place, self.0[2] as usize))
    }

    /// The frame pointer that it was found by.
    pub(super) fn by_frame(self) -> Option<usize> {
        (self.0[0] & BY_FRAME != 0).then_some(self.0[3] as usize)
    }

    pub(super) fn ip(self) -> u64 {
        self.0[0] & ADDRESS
    }

    pub(super) fn stack_pointer(self) -> u64 {
        self.0[1] & ADDRESS
    }

    #[inline(always)]
    pub(super) fn store(self, frame: &Frame) {
        for (place, word) in frame.iter().zip(self.0) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

pub(super) fn copy(from: &Frame, to: &Frame) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A return address, without the signature that it may have on AArch64.
pub(super) fn without_signature(address: usize) -> usize {
    address & ADDRESS as usize
}

/// Changes a word of what a thread remembers to a random one or by a bit.
#[cfg(test)]
pub(super) fn damage(place: &AtomicU64, mut random: impl FnMut() -> u64) {
    let before = place.load(Ordering::Relaxed);
    let word = match random() % 4 {
        0 => random(),
        // A change that looks like a frame nearby.
        1 => before.wrapping_add((random() % 512 * 8).wrapping_sub(2048)),
        2 => before | VERIFIABLE,
        _ => before ^ 1 << (random() % 64),
    };
    place.store(word, Ordering::Relaxed);
}
