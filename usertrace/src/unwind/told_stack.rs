//! One stack, as words of memory that tell whether it is still the same.
//!
//! A walk is a function of where it begins, the rules of instructions, and the words of the stack
//! that the rules name. As long as no code is loaded or unloaded, the rules stay the same. So a
//! walk that begins at the same address, with the same stack pointer, comes to the same addresses
//! if it reads the same words. A frame pointer matters only if a rule was relative to it: programs
//! use that register for anything else, and so do the words where it was saved.

use std::sync::atomic::{AtomicU64, Ordering};

use super::known_memory::{KnownMemory, WORD};
use super::step::{ADDRESS, ADDRESS_BITS, Step};

/// Words that tell a stack. With them, a stack has 256 bytes.
const WORDS: usize = 28;

/// The bit of an extent that says that the walk depends on the frame pointer where it began.
const BY_FRAME: u64 = 1 << 63;

/// Where a walk begins: an event in a function that has called one of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The event's address, to which the function of the library returns.
    pub(crate) ip: usize,
    /// The stack pointer in that function, which has left the address behind its call right below.
    pub(crate) stack_pointer: usize,
    /// The frame pointer at the event, if it is known.
    pub(crate) frame_pointer: Option<usize>,
    /// The changes to loaded code so far.
    pub(crate) changes: u32,
    /// Most addresses.
    pub(crate) max: usize,
}

impl Start {
    /// The lowest word that tells the stack.
    pub(super) fn base(&self) -> usize {
        self.stack_pointer.wrapping_sub(WORD)
    }

    fn key(&self) -> u64 {
        self.ip as u64 & ADDRESS | (self.max as u64) << ADDRESS_BITS
    }
}

/// The words that tell a stack. Zeros are valid: there is none. Relaxed: only one thread and its
/// signal handlers use them.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct ToldStack {
    /// The address where the walk begins, and most addresses.
    key: AtomicU64,
    stack_pointer: AtomicU64,
    /// The changes to loaded code that it is as of; in the upper half, how many words only tell it,
    /// how many more are addresses of it, and [`BY_FRAME`]. Without words, there is no stack.
    extent: AtomicU64,
    /// The frame pointer that it depends on.
    frame_pointer: AtomicU64,
    /// The lower 48 bits of each, and above them its distance from the lowest one, in words.
    words: [AtomicU64; WORDS],
}

impl ToldStack {
    pub(super) fn forget(&self) {
        self.extent.store(0, Ordering::Relaxed);
    }

    /// Becomes the stack of a walk with these frames, from the event's on, if words can tell it.
    /// Otherwise, or if `are_own` says at the end that the frames have become those of another
    /// walk, it is none. The memory begins at the stack's [base](Start::base).
    pub(super) fn set(
        &self,
        start: &Start,
        memory: KnownMemory,
        frames: impl Iterator<Item = Step>,
        are_own: impl FnOnce() -> bool,
    ) -> bool {
        self.forget();
        self.key.store(start.key(), Ordering::Relaxed);
        let stack_pointer = start.stack_pointer as u64;
        self.stack_pointer.store(stack_pointer, Ordering::Relaxed);
        let extent = self.store_words(start, memory, frames);
        let Some(extent) = extent.filter(|_| are_own()) else {
            return false;
        };
        self.extent.store(extent, Ordering::Relaxed);
        true
    }

    /// Stores the words that tell a stack, and returns its extent. None if they do not.
    fn store_words(
        &self,
        start: &Start,
        memory: KnownMemory,
        mut frames: impl Iterator<Item = Step>,
    ) -> Option<u64> {
        // The words that only tell the stack come first; its addresses are collected apart.
        let (mut addresses, mut count, mut telling) = ([0; WORDS], 1, 1);
        let put = |at: usize, word: u64| {
            let place = self.words.get(at)?;
            place.store(word, Ordering::Relaxed);
            Some(())
        };
        let word = |place: usize, value: usize| {
            let distance = place.checked_sub(start.base())? / WORD;
            let is_there = memory.get(distance) == Some(value);
            let fits = distance < 1 << (u64::BITS - ADDRESS_BITS) && value as u64 <= ADDRESS;
            (is_there && fits).then_some(value as u64 | (distance as u64) << ADDRESS_BITS)
        };
        // The address behind the call of a function of the library, and that function's way back.
        put(0, word(start.base(), memory.get(0)?)?)?;
        let own = frames.next()?;
        addresses[0] = word(below(own), start.ip)?;
        let mut origin = Origin::Start;
        let mut extent = u64::from(start.changes);
        for step in frames {
            if !step.is_verifiable() {
                return None;
            }
            if let Some(pointer) = step.by_frame() {
                match origin {
                    Origin::Start if start.frame_pointer == Some(pointer) => {
                        self.frame_pointer.store(pointer as u64, Ordering::Relaxed);
                        extent |= BY_FRAME;
                    }
                    Origin::Saved(place, value) if value == pointer => {
                        put(telling, word(place, value)?)?;
                        telling += 1;
                        origin = Origin::Stored(value);
                    }
                    Origin::Stored(value) if value == pointer => {}
                    _ => return None,
                }
            }
            if let Some((place, value)) = step.saved() {
                origin = Origin::Saved(place, value);
            }
            let address = word(below(step), step.ip() as usize)?;
            *addresses.get_mut(count)? = address;
            count += 1;
        }
        for (at, word) in addresses[..count].iter().enumerate() {
            put(telling + at, *word)?;
        }
        Some(extent | (telling as u64) << 32 | (count as u64) << 40)
    }

    #[inline(always)]
    fn is_of(&self, start: &Start) -> bool {
        self.key.load(Ordering::Relaxed) == start.key()
            && self.stack_pointer.load(Ordering::Relaxed) == start.stack_pointer as u64
    }

    /// The words of its addresses, if it has that beginning, and the words are the same that only
    /// tell it.
    #[inline(always)]
    pub(super) fn addresses(&self, start: &Start, memory: KnownMemory) -> Option<&[AtomicU64]> {
        let extent = self.extent.load(Ordering::Relaxed);
        let [telling, appended] = [32, 40].map(|shift| usize::from((extent >> shift) as u8));
        if !self.is_of(start) || extent as u32 != start.changes || telling == 0 {
            return None;
        }
        if extent & BY_FRAME != 0 {
            let by_frame = self.frame_pointer.load(Ordering::Relaxed);
            if start.frame_pointer.map(|pointer| pointer as u64) != Some(by_frame) {
                return None;
            }
        }
        let words = self.words.get(..telling + appended)?;
        let (telling, addresses) = words.split_at(telling);
        // Whatever is remembered, a stack begins with its event.
        let is_of_event =
            |first: &AtomicU64| first.load(Ordering::Relaxed) & ADDRESS == start.ip as u64;
        let is_told = addresses.first().is_some_and(is_of_event)
            && telling.iter().all(|word| still(word, memory).is_some());
        is_told.then_some(addresses)
    }

    /// Changes one of its words to a random one or by a bit, if there is a stack.
    #[cfg(test)]
    pub(super) fn damage(&self, mut random: impl FnMut() -> u64) {
        if self.key.load(Ordering::Relaxed) == 0 {
            return;
        }
        let place = match random() as usize % 8 {
            0 => &self.extent,
            1 => &self.frame_pointer,
            _ => &self.words[random() as usize % WORDS],
        };
        crate::unwind::step::damage(place, random);
    }
}

/// The value of a word of a stack, if it is still in the memory.
#[inline(always)]
pub(crate) fn still(word: &AtomicU64, memory: KnownMemory) -> Option<u64> {
    let word = word.load(Ordering::Relaxed);
    let value = word & ADDRESS;
    (memory.get((word >> ADDRESS_BITS) as usize) == Some(value as usize)).then_some(value)
}

/// The place of a frame's address, which is right below its stack pointer.
pub(super) fn below(step: Step) -> usize {
    (step.stack_pointer() as usize).wrapping_sub(WORD)
}

/// Where the frame pointer of a frame comes from.
#[derive(Clone, Copy)]
enum Origin {
    /// It is that of the event.
    Start,
    /// It was saved there.
    Saved(usize, usize),
    /// It was saved, and the word there tells the stack already.
    Stored(usize),
}
