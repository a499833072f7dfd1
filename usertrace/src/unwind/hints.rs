//! Remembers, for all threads, how far apart the return addresses of functions and of their callers
//! are on the stack. That depends on the instruction alone in most functions. It is a hint: whoever
//! uses it compares what is there.

use std::sync::atomic::{AtomicU32, Ordering};

use super::spread::{place, spread};

/// Each instruction has one possible set.
const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 13;
/// Distances of a set. If there were one, two instructions of a loop could take each other's place
/// all the time.
const WAYS: usize = 2;
/// Bits of a word that are the distance, in words of the stack. The others tell the instruction.
const DISTANCE_BITS: u32 = 16;

/// Distances. Zeros are valid: none is known.
#[derive(Debug)]
pub(super) struct Hints([[AtomicU32; WAYS]; SETS]);

impl Hints {
    pub(super) const fn new() -> Self {
        Self([const { [const { AtomicU32::new(0) }; WAYS] }; SETS])
    }

    /// The distance of an instruction, which a number identifies; 0: unknown.
    #[inline(always)]
    pub(super) fn get(&self, instruction: usize) -> usize {
        let (set, tag) = self.set(instruction);
        // Relaxed: a wrong one is noticed, see above.
        let found = set.iter().find_map(|word| {
            let differs = word.load(Ordering::Relaxed) ^ tag;
            (differs >> DISTANCE_BITS == 0).then_some(differs)
        });
        found.unwrap_or(0) as usize
    }

    /// Remembers a distance in the place of the older one of its set, if it is not too long.
    pub(super) fn put(&self, instruction: usize, distance: usize) {
        if distance >> DISTANCE_BITS != 0 || self.get(instruction) == distance {
            return;
        }
        let (set, tag) = self.set(instruction);
        let mut newer = tag | distance as u32;
        for place in set {
            let older = place.load(Ordering::Relaxed);
            place.store(newer, Ordering::Relaxed);
            if (older ^ tag) >> DISTANCE_BITS == 0 {
                return;
            }
            newer = older;
        }
    }

    /// The set of an instruction, and the bits by which its distance is known there.
    #[inline(always)]
    fn set(&self, instruction: usize) -> (&[AtomicU32; WAYS], u32) {
        let hash = spread(instruction as u64);
        let set = &self.0[place(hash, SET_BITS) % SETS];
        let tag = (hash >> (u64::BITS - SET_BITS - u32::BITS)) as u32;
        (set, tag >> DISTANCE_BITS << DISTANCE_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_its_newest_distances() {
        let hints = Box::new(Hints::new());
        let first = 0x5555_0000;
        let set = |instruction| std::ptr::from_ref(hints.set(instruction).0);
        let mut of_set = (first..).filter(|&other| set(other) == set(first));
        let all: [usize; WAYS + 1] = std::array::from_fn(|_| of_set.next().unwrap());
        let found = || all.map(|instruction| hints.get(instruction));
        assert_eq!(found(), [0; 3]);
        hints.put(all[0], 1);
        hints.put(all[1], 0xffff);
        assert_eq!(found(), [1, 0xffff, 0]);
        hints.put(all[0], 3);
        hints.put(all[1], 0x1_0000);
        assert_eq!(found(), [3, 0xffff, 0]);
        hints.put(all[2], 4);
        assert_eq!(found(), [3, 0, 4]);
    }
}
