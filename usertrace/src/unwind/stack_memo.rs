//! Remembers whole stacks of a thread. A program records most of its events with few stacks, so
//! that a walk need not be done again: it is enough that the words are still there that it read.
//!
//! A walk is a function of where it begins, the rules of instructions, and the words of the stack
//! that the rules name. As long as no code is loaded or unloaded, the rules stay the same. So a
//! walk that begins at the same address, with the same stack pointer, comes to the same addresses
//! if it reads the same words. A frame pointer matters only if a rule was relative to it: programs
//! use that register for anything else, and so do the words where it was saved.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::known_memory::{KnownMemory, WORD};
use super::step::{ADDRESS, ADDRESS_BITS, Step};

/// Stacks that are remembered. Each has one possible place.
const STACKS: usize = 1 << STACK_BITS;
const STACK_BITS: u32 = 7;
/// Each beginning, with its first callers, has one possible [hint](StackMemo::hints).
const HINTS: usize = 1 << HINT_BITS;
const HINT_BITS: u32 = 9;
/// One stack of so many takes the place of one with the same beginning.
const PATIENCE: u32 = 4;
/// Callers that choose the place of a stack.
const CALLERS: usize = 3;
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
    fn base(&self) -> usize {
        self.stack_pointer.wrapping_sub(WORD)
    }

    fn key(&self) -> u64 {
        self.ip as u64 & ADDRESS | (self.max as u64) << ADDRESS_BITS
    }
}

/// The stacks of a thread. Zeros are valid: there are none.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StackMemo {
    /// Where the return address of a function was, for a beginning and the callers before:
    /// functions such as `operator new` have many callers, whose stacks are to have different
    /// places. If it is wrong, a stack is not found.
    hints: [AtomicU16; HINTS],
    /// How often a stack had the place of another one with the same beginning.
    others: AtomicU32,
    stacks: [Stack; STACKS],
}

impl Default for StackMemo {
    fn default() -> Self {
        Self {
            hints: [const { AtomicU16::new(0) }; HINTS],
            others: AtomicU32::new(0),
            stacks: std::array::from_fn(|_| Stack::default()),
        }
    }
}

/// The words that tell a stack. Relaxed: only one thread and its signal handlers use them.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Stack {
    /// The address where the walk begins, and most addresses; 0: there is no stack.
    key: AtomicU64,
    stack_pointer: AtomicU64,
    /// The changes to loaded code that it is as of; in the upper half, how many words only tell it,
    /// how many more are addresses of it, and [`BY_FRAME`]. Without words, it has come once only.
    extent: AtomicU64,
    /// The frame pointer that it depends on.
    frame_pointer: AtomicU64,
    /// The lower 48 bits of each, and above them its distance from the lowest one, in words.
    words: [AtomicU64; WORDS],
}

impl Stack {
    fn is_of(&self, start: &Start) -> bool {
        self.key.load(Ordering::Relaxed) == start.key()
            && self.stack_pointer.load(Ordering::Relaxed) == start.stack_pointer as u64
    }
}

impl StackMemo {
    /// Forgets all stacks, for the calling thread, which takes it from a thread that ended.
    pub(crate) fn forget(&self) {
        for stack in &self.stacks {
            // A store of what is there would cost most threads a page.
            if stack.key.load(Ordering::Relaxed) != 0 {
                stack.key.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Changes one of its words to a random one or by a bit.
    #[cfg(test)]
    pub(crate) fn damage(&self, mut random: impl FnMut() -> u64) {
        let used = |stack: &&Stack| stack.key.load(Ordering::Relaxed) != 0;
        let used: Vec<_> = self.stacks.iter().filter(used).collect();
        let Some(stack) = used.get(random() as usize % used.len().max(1)) else {
            return;
        };
        let place = match random() as usize % 8 {
            0 => &stack.extent,
            1 => &stack.frame_pointer,
            _ => &stack.words[random() as usize % WORDS],
        };
        crate::unwind::step::damage(place, random);
    }

    /// The place of the stack that begins there, in memory from its [base](Start::base) on. Calls
    /// `of_caller` with each hint on the way.
    #[inline(always)]
    fn at(
        &self,
        start: &Start,
        memory: KnownMemory,
        mut of_caller: impl FnMut(&AtomicU16),
    ) -> &Stack {
        let mut hash = hashed((start.ip ^ start.stack_pointer.rotate_left(20)) as u64);
        for _ in 0..CALLERS {
            let hint = &self.hints[(hash >> (u64::BITS - HINT_BITS)) as usize % HINTS];
            of_caller(hint);
            let caller = memory.get(hint.load(Ordering::Relaxed).into()).unwrap_or(0);
            hash = hashed(hash ^ caller as u64);
        }
        &self.stacks[(hash >> (u64::BITS - STACK_BITS)) as usize % STACKS]
    }

    /// The words of the addresses of the stack that begins there, from the innermost on, if it is
    /// remembered, and the words are the same that only tell it; and the memory in which the
    /// addresses are if they are [still] the same.
    #[inline(always)]
    pub(super) fn recall(
        &self,
        start: &Start,
        memory: KnownMemory,
    ) -> Option<(&[AtomicU64], KnownMemory)> {
        let memory = memory.from(start.base())?;
        let stack = self.at(start, memory, |_| {});
        let extent = stack.extent.load(Ordering::Relaxed);
        let [telling, appended] = [32, 40].map(|shift| usize::from((extent >> shift) as u8));
        if !stack.is_of(start) || extent as u32 != start.changes || telling == 0 {
            return None;
        }
        if extent & BY_FRAME != 0 {
            let by_frame = stack.frame_pointer.load(Ordering::Relaxed);
            if start.frame_pointer.map(|pointer| pointer as u64) != Some(by_frame) {
                return None;
            }
        }
        let words = stack.words.get(..telling + appended)?;
        let (telling, addresses) = words.split_at(telling);
        // Whatever is remembered, a stack begins with its event.
        let is_of_event =
            |first: &AtomicU64| first.load(Ordering::Relaxed) & ADDRESS == start.ip as u64;
        let is_told = addresses.first().is_some_and(is_of_event)
            && telling.iter().all(|word| still(word, memory).is_some());
        is_told.then_some((addresses, memory))
    }

    /// Remembers the stack of a walk, if it comes for the second time, and words can tell it.
    /// `frames` are all of the walk, from the event's on, unless `are_own` says at the end that
    /// they have become those of another one.
    #[cold]
    #[inline(never)]
    pub(super) fn remember(
        &self,
        start: &Start,
        memory: KnownMemory,
        mut frames: impl Iterator<Item = Step> + Clone,
        are_own: impl FnOnce() -> bool,
    ) {
        let Some(memory) = memory.from(start.base()) else {
            return;
        };
        let mut callers = frames.clone().skip(1);
        let stack = self.at(start, memory, |hint| {
            let place = callers.next().map_or(0, below);
            let distance = place.wrapping_sub(start.base()) / WORD;
            hint.store(distance as u16, Ordering::Relaxed);
        });
        let extent = stack.extent.load(Ordering::Relaxed);
        if !stack.is_of(start) {
            stack.extent.store(0, Ordering::Relaxed);
            stack.key.store(start.key(), Ordering::Relaxed);
            let stack_pointer = start.stack_pointer as u64;
            stack.stack_pointer.store(stack_pointer, Ordering::Relaxed);
            return;
        }
        // Stacks that take turns at a place are not stored each time.
        let others = self.others.load(Ordering::Relaxed).wrapping_add(1);
        self.others.store(others, Ordering::Relaxed);
        let has_other = extent >> 32 != 0 && extent as u32 == start.changes;
        if has_other && !others.is_multiple_of(PATIENCE) {
            return;
        }
        stack.extent.store(0, Ordering::Relaxed);
        if let Some(extent) = store(stack, start, memory, &mut frames)
            && are_own()
        {
            stack.extent.store(extent, Ordering::Relaxed);
        }
    }
}

/// The value of a word of a stack, if it is still in the memory.
#[inline(always)]
pub(super) fn still(word: &AtomicU64, memory: KnownMemory) -> Option<u64> {
    let word = word.load(Ordering::Relaxed);
    let value = word & ADDRESS;
    (memory.get((word >> ADDRESS_BITS) as usize) == Some(value as usize)).then_some(value)
}

fn hashed(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The place of a frame's address, which is right below its stack pointer.
fn below(step: Step) -> usize {
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

/// Stores the words that tell a stack, and returns its extent. None if they do not. The memory
/// begins at the stack's [base](Start::base).
fn store(
    stack: &Stack,
    start: &Start,
    memory: KnownMemory,
    frames: &mut impl Iterator<Item = Step>,
) -> Option<u64> {
    // The words that only tell the stack come first; its addresses are collected apart.
    let (mut addresses, mut count, mut telling) = ([0; WORDS], 1, 1);
    let put = |at: usize, word: u64| {
        let place = stack.words.get(at)?;
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
                    stack.frame_pointer.store(pointer as u64, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    const IP: usize = 0x10_0001;
    const RETURNS: [usize; 3] = [0x20_0002, 0x30_0003, 0x40_0004];

    /// A stack of 16 words. The function of the library has the stack pointer at the word 2, and
    /// the event's function at 4. The callers' frames begin at 7, 10 and 13. The first one saved
    /// the frame pointer at 5, by which the second one is found, and the third one saved it at 11.
    struct Example {
        words: Box<[usize; 16]>,
        memo: StackMemo,
        start: Start,
        steps: Vec<Step>,
    }

    impl Example {
        fn at(&self, word: usize) -> usize {
            self.words.as_ptr().expose_provenance() + WORD * word
        }

        fn new() -> Self {
            let mut example = Self {
                words: Box::default(),
                memo: StackMemo::default(),
                start: Start {
                    ip: IP,
                    stack_pointer: 0,
                    frame_pointer: Some(77),
                    changes: 3,
                    max: 8,
                },
                steps: Vec::new(),
            };
            let [own, first, second, third] = [4, 7, 10, 13].map(|word| example.at(word));
            let frame = example.at(8);
            example.start.stack_pointer = example.at(2);
            let [one, two, three] = RETURNS;
            for (word, value) in [
                (1, 0x7_0007),
                (3, IP),
                (5, frame),
                (6, one),
                (9, two),
                (11, 99),
                (12, three),
            ] {
                example.words[word] = value;
            }
            example.steps = vec![
                Step::untold(IP, own),
                Step::told(one, first, Some((-2, frame)), None),
                Step::told(two, second, None, Some(frame)),
                Step::told(three, third, Some((-2, 99)), None),
            ];
            example
        }

        fn memory(&self) -> KnownMemory {
            // SAFETY: the array stays as long as this.
            unsafe { KnownMemory::new(self.at(0), self.at(16)) }.unwrap()
        }

        fn remember(&self) {
            let steps = self.steps.iter().copied();
            self.memo
                .remember(&self.start, self.memory(), steps, || true);
        }

        fn remembered() -> Self {
            let example = Self::new();
            example.remember();
            example.remember();
            example
        }

        /// The addresses of a walk that begins there.
        fn recalled(&self, start: &Start) -> Option<Vec<usize>> {
            let (words, memory) = self.memo.recall(start, self.memory())?;
            let address = |word| Some(still(word, memory)? as usize);
            words.iter().map(address).collect()
        }

        fn is_recalled(&self) -> bool {
            let recalled = self.recalled(&self.start);
            let [one, two, three] = RETURNS;
            assert!(recalled.is_none() || recalled.as_deref() == Some(&[IP, one, two, three]));
            recalled.is_some()
        }
    }

    /// A stack that comes once only is not worth it.
    #[test]
    fn stacks_are_remembered_the_second_time() {
        let example = Example::new();
        assert!(!example.is_recalled());
        example.remember();
        assert!(!example.is_recalled());
        example.remember();
        assert!(example.is_recalled());
        example.memo.forget();
        assert!(!example.is_recalled());
    }

    #[test]
    fn only_words_that_the_walk_read_tell_a_stack() {
        for word in 0..16 {
            let mut example = Example::remembered();
            example.words[word] ^= 8;
            let is_read = [1, 3, 5, 6, 9, 12].contains(&word);
            assert_eq!(example.is_recalled(), !is_read, "word {word}");
            example.words[word] ^= 8;
            assert!(example.is_recalled(), "word {word}");
        }
    }

    #[test]
    fn walks_that_begin_elsewhere_are_others() {
        let example = Example::remembered();
        let start = example.start;
        let other_pointers = [None, Some(78)].map(|frame_pointer| Start {
            frame_pointer,
            ..start
        });
        // No rule was relative to it.
        assert!(
            other_pointers
                .iter()
                .all(|start| example.recalled(start).is_some())
        );
        for other in [
            Start {
                ip: IP + 1,
                ..start
            },
            Start {
                stack_pointer: start.stack_pointer + 8,
                ..start
            },
            Start {
                changes: 4,
                ..start
            },
            Start { max: 7, ..start },
        ] {
            assert_eq!(example.recalled(&other), None, "{other:x?}");
        }
    }

    #[test]
    fn the_frame_pointer_at_the_event_matters_if_a_rule_is_relative_to_it() {
        let mut example = Example::new();
        let first = example.at(7);
        example.steps[1] = Step::told(RETURNS[0], first, Some((-2, example.at(8))), Some(77));
        example.remember();
        example.remember();
        assert!(example.is_recalled());
        for frame_pointer in [None, Some(78)] {
            example.start.frame_pointer = frame_pointer;
            assert!(!example.is_recalled(), "{frame_pointer:?}");
            // Nor is it remembered with another one than the walk had.
            (0..2 * PATIENCE).for_each(|_| example.remember());
            assert!(!example.is_recalled(), "{frame_pointer:?}");
        }
    }

    #[test]
    fn stacks_that_words_do_not_tell_are_not_remembered() {
        let mut outside = Example::new().steps[3];
        let changes: [fn(&mut Example); 5] = [
            |example| example.steps[2] = Step::untold(RETURNS[1], example.at(10)),
            // By another frame pointer than the one that was saved.
            |example| {
                example.steps[2] = Step::told(RETURNS[1], example.at(10), None, Some(8));
            },
            |example| example.words[6] += 1,
            |example| example.words[3] += 1,
            |example| example.steps = vec![example.steps[2]; WORDS],
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut example = Example::new();
            change(&mut example);
            (0..2 * PATIENCE).for_each(|_| example.remember());
            assert_eq!(example.recalled(&example.start), None, "{number}");
        }
        let mut example = Example::new();
        std::mem::swap(&mut example.steps[3], &mut outside);
        (0..2).for_each(|_| example.remember());
        assert!(!example.is_recalled(), "a frame on another stack");
    }

    #[test]
    fn frames_of_another_walk_are_not_remembered() {
        let example = Example::new();
        for _ in 0..2 {
            let steps = example.steps.iter().copied();
            (example.memo).remember(&example.start, example.memory(), steps, || false);
        }
        assert!(!example.is_recalled());
        example.remember();
        assert!(example.is_recalled());
    }

    /// Two stacks with the same beginning: each takes the place of the other one at times.
    #[test]
    fn stacks_with_the_same_beginning_take_turns() {
        let mut example = Example::remembered();
        let other = 0x50_0005;
        example.words[12] = other;
        example.steps[3] = Step::told(other, example.at(13), Some((-2, 99)), None);
        let mut count = 0;
        while example.recalled(&example.start).is_none() {
            example.remember();
            count += 1;
            assert!(count <= PATIENCE);
        }
        let recalled = example.recalled(&example.start).unwrap();
        assert_eq!(recalled.last(), Some(&other));
    }
}
