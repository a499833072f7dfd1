//! Remembers whole stacks of a thread. A program records most of its events with few stacks, so
//! that a walk need not be done again: it is enough that the words are still there that it read
//! (`told_stack.rs`).
//!
//! The stack that was recalled last with the same beginning is tried first. Otherwise a hash of the
//! innermost callers finds it: that takes several times as long, as each load waits for another.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::code_memo::CODE;
use super::known_memory::{KnownMemory, WORD};
use super::spread::{place, spread};
use super::step::Step;
use super::told_stack::{Start, ToldStack, below};

/// Stacks that are remembered.
const STACKS: usize = SETS * WAYS;
/// Each stack has two possible sets. With one, some sets would have more stacks than places while
/// others are empty.
const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 5;
/// Stacks of a set.
const WAYS: usize = 4;
/// Hashes of stacks that have come once. Each has one possible place.
const ONCE: usize = 1 << ONCE_BITS;
const ONCE_BITS: u32 = 10;
/// Places for the stack that was recalled last. Each beginning has one possible place.
const STARTS: usize = 1 << START_BITS;
const START_BITS: u32 = 8;
/// Callers that choose the sets of a stack: functions such as `operator new` have many callers,
/// whose stacks are to have different places.
const CALLERS: usize = 6;

/// The stacks of a thread. Zeros are valid: there are none. Relaxed: only the thread and its signal
/// handlers use it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StackMemo {
    once: [AtomicU32; ONCE],
    latest: [AtomicU16; STARTS],
    /// A part of the hash of each stack; 0: there is none.
    hashes: [AtomicU32; STACKS],
    /// Not 0: the stack was recalled since its place was wanted for another one.
    came: [AtomicU8; STACKS],
    stacks: [ToldStack; STACKS],
}

impl Default for StackMemo {
    fn default() -> Self {
        Self {
            once: [const { AtomicU32::new(0) }; ONCE],
            latest: [const { AtomicU16::new(0) }; STARTS],
            hashes: [const { AtomicU32::new(0) }; STACKS],
            came: [const { AtomicU8::new(0) }; STACKS],
            stacks: std::array::from_fn(|_| ToldStack::default()),
        }
    }
}

impl StackMemo {
    /// Forgets all stacks, for the calling thread, which takes it from a thread that ended.
    pub(crate) fn forget(&self) {
        for (hash, stack) in self.hashes.iter().zip(&self.stacks) {
            // A store of what is there would cost most threads a page.
            if hash.load(Ordering::Relaxed) != 0 {
                hash.store(0, Ordering::Relaxed);
                stack.forget();
            }
        }
    }

    /// Changes one of its words to a random one or by a bit.
    #[cfg(test)]
    pub(crate) fn damage(&self, mut random: impl FnMut() -> u64) {
        let used = |(hash, _): &(&AtomicU32, _)| hash.load(Ordering::Relaxed) != 0;
        let used: Vec<_> = self.hashes.iter().zip(&self.stacks).filter(used).collect();
        if let Some((_, stack)) = used.get(random() as usize % used.len().max(1)) {
            stack.damage(random);
        }
    }

    /// Whether the stack that begins there is remembered. If so, `append` got the words of its
    /// addresses last, from the innermost on, and found all of them
    /// [`still`](super::told_stack::still) in the memory that it got, too.
    #[inline(always)]
    pub(super) fn recall(
        &self,
        start: &Start,
        memory: KnownMemory,
        mut append: impl FnMut(&[AtomicU64], KnownMemory) -> bool,
    ) -> bool {
        let Some(memory) = memory.from(start.base()) else {
            return false;
        };
        let mut is_at = |place: usize| {
            let words = self.stacks[place].addresses(start, memory);
            let is_same = words.is_some_and(|words| append(words, memory));
            if is_same {
                self.came[place].store(1, Ordering::Relaxed);
            }
            is_same
        };
        let latest = &self.latest[number(start)];
        if is_at(usize::from(latest.load(Ordering::Relaxed)) % STACKS) {
            return true;
        }
        let hash = Hash::of(start, memory);
        let is_of_hash = |place: usize| self.hashes[place].load(Ordering::Relaxed) == hash.short();
        let found = hash
            .places()
            .find(|&place| is_of_hash(place) && is_at(place));
        if let Some(place) = found {
            latest.store(place as u16, Ordering::Relaxed);
        }
        found.is_some()
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
        frames: impl Iterator<Item = Step> + Clone,
        are_own: impl FnOnce() -> bool,
    ) {
        let Some(memory) = memory.from(start.base()) else {
            return;
        };
        let (mut place, mut instruction) = (start.base(), first_instruction(start, memory));
        for caller in frames.clone().skip(1).take(CALLERS) {
            CODE.hints
                .put(instruction, below(caller).wrapping_sub(place) / WORD);
            (place, instruction) = (below(caller), caller.ip() as usize);
        }
        let hash = Hash::of(start, memory);
        let once = &self.once[hash.once()];
        if once.load(Ordering::Relaxed) != hash.short() {
            once.store(hash.short(), Ordering::Relaxed);
            return;
        }
        let Some(place) = self.place_for(hash) else {
            return;
        };
        self.hashes[place].store(0, Ordering::Relaxed);
        if self.stacks[place].set(start, memory, frames, are_own) {
            self.hashes[place].store(hash.short(), Ordering::Relaxed);
        }
    }

    /// A place for a stack: one that is empty, or whose stack has not come since a place was
    /// wanted. None if there is none now: the stacks that are there come more often.
    fn place_for(&self, hash: Hash) -> Option<usize> {
        let is_empty = |&place: &usize| self.hashes[place].load(Ordering::Relaxed) == 0;
        let is_idle = |&place: &usize| self.came[place].swap(0, Ordering::Relaxed) == 0;
        let empty = hash.places().find(is_empty);
        empty.or_else(|| hash.places().find(is_idle))
    }
}

/// The hash of a stack.
#[derive(Clone, Copy, Debug)]
struct Hash(u64);

impl Hash {
    /// That of the stack that begins there, in memory from its [base](Start::base) on.
    #[inline(always)]
    fn of(start: &Start, memory: KnownMemory) -> Self {
        let (mut place, mut instruction) = (0, first_instruction(start, memory));
        let mut hash = spread((instruction ^ start.stack_pointer.rotate_left(20)) as u64);
        for _ in 0..CALLERS {
            place += CODE.hints.get(instruction);
            instruction = memory.get(place).unwrap_or(0);
            hash = spread(hash ^ instruction as u64);
        }
        Self(hash)
    }

    /// The places in which the stack may be.
    #[inline(always)]
    fn places(self) -> impl Iterator<Item = usize> {
        let sets = [1, 2].map(|n| (self.0 >> (u64::BITS - n * SET_BITS)) as usize % SETS);
        (0..2 * WAYS).map(move |n| sets[n / WAYS] * WAYS + n % WAYS)
    }

    /// The place of the hash if the stack has come once.
    fn once(self) -> usize {
        place(self.0, ONCE_BITS) % ONCE
    }

    /// The part that is stored.
    #[inline(always)]
    fn short(self) -> u32 {
        (self.0 >> 16) as u32 | 1
    }
}

/// The place of a beginning among [`STARTS`].
#[inline(always)]
fn number(start: &Start) -> usize {
    let hash = spread((start.ip ^ start.stack_pointer.rotate_left(20)) as u64);
    place(hash, START_BITS) % STARTS
}

/// What the distance of the event's caller from the [base](Start::base) depends on: the event's
/// instruction, and that of the function of the library.
#[inline(always)]
fn first_instruction(start: &Start, memory: KnownMemory) -> usize {
    start.ip ^ memory.get(0).unwrap_or(0).rotate_left(7)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::told_stack::still;
    use super::*;

    /// Tests share the hints, so each example has its own addresses, from one of these on.
    static NEXT: AtomicUsize = AtomicUsize::new(0x10_0001);

    /// A stack of 16 words. The function of the library has the stack pointer at the word 2, and
    /// the event's function at 4. The callers' frames begin at 7, 10 and 13. The first one saved
    /// the frame pointer at 5, by which the second one is found, and the third one saved it at 11.
    struct Example {
        words: Box<[usize; 16]>,
        memo: StackMemo,
        start: Start,
        returns: [usize; 3],
        steps: Vec<Step>,
    }

    impl Example {
        fn at(&self, word: usize) -> usize {
            self.words.as_ptr().expose_provenance() + WORD * word
        }

        fn new() -> Self {
            let ip = NEXT.fetch_add(0x100_0000, Ordering::Relaxed);
            let mut example = Self {
                words: Box::default(),
                memo: StackMemo::default(),
                start: Start {
                    ip,
                    stack_pointer: 0,
                    frame_pointer: Some(77),
                    changes: 3,
                    max: 8,
                },
                returns: [0x10_0001, 0x20_0002, 0x30_0003].map(|at| ip + at),
                steps: Vec::new(),
            };
            let [own, first, second, third] = [4, 7, 10, 13].map(|word| example.at(word));
            let frame = example.at(8);
            example.start.stack_pointer = example.at(2);
            let [one, two, three] = example.returns;
            for (word, value) in [
                (1, 0x7_0007),
                (3, ip),
                (5, frame),
                (6, one),
                (9, two),
                (11, 99),
                (12, three),
            ] {
                example.words[word] = value;
            }
            example.steps = vec![
                Step::untold(ip, own),
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
            let mut recalled = None;
            let is_recalled = self.memo.recall(start, self.memory(), |words, memory| {
                let address = |word| Some(still(word, memory)? as usize);
                recalled = words.iter().map(address).collect();
                recalled.is_some()
            });
            recalled.filter(|_| is_recalled)
        }

        fn is_recalled(&self) -> bool {
            let recalled = self.recalled(&self.start);
            let [one, two, three] = self.returns;
            let expected = [self.start.ip, one, two, three];
            assert!(recalled.is_none() || recalled.as_deref() == Some(&expected));
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
                ip: start.ip + 1,
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
        example.steps[1] = Step::told(
            example.returns[0],
            first,
            Some((-2, example.at(8))),
            Some(77),
        );
        example.remember();
        example.remember();
        assert!(example.is_recalled());
        for frame_pointer in [None, Some(78)] {
            example.start.frame_pointer = frame_pointer;
            assert!(!example.is_recalled(), "{frame_pointer:?}");
            // Nor is it remembered with another one than the walk had.
            (0..4).for_each(|_| example.remember());
            assert!(!example.is_recalled(), "{frame_pointer:?}");
        }
    }

    #[test]
    fn stacks_that_words_do_not_tell_are_not_remembered() {
        let mut outside = Example::new().steps[3];
        let changes: [fn(&mut Example); 5] = [
            |example| example.steps[2] = Step::untold(example.returns[1], example.at(10)),
            // By another frame pointer than the one that was saved.
            |example| {
                example.steps[2] = Step::told(example.returns[1], example.at(10), None, Some(8));
            },
            |example| example.words[6] += 1,
            |example| example.words[3] += 1,
            |example| example.steps = vec![example.steps[2]; 28],
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut example = Example::new();
            change(&mut example);
            (0..4).for_each(|_| example.remember());
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

    /// They differ further out than the callers that choose their sets.
    #[test]
    fn stacks_with_the_same_hash_are_remembered() {
        let mut example = Example::remembered();
        let outermost = example.returns[2];
        let last = example.steps[3];
        let others: Vec<_> = (1..4).map(|n| outermost + 16 * n).collect();
        for &other in &others {
            // More than the callers that choose: they are a part of the hash here.
            example.words[12] = other;
            example.steps[3] = Step::told(other, example.at(13), Some((-2, 99)), None);
            (0..2).for_each(|_| example.remember());
            let recalled = example.recalled(&example.start).unwrap();
            assert_eq!(recalled.last(), Some(&other));
        }
        example.steps[3] = last;
        example.words[12] = outermost;
        assert!(example.is_recalled(), "others do not take its place");
    }

    /// Those that come again and again keep their places.
    #[test]
    fn stacks_that_come_seldom_take_no_place_of_others() {
        let mut example = Example::remembered();
        let start = example.start;
        // More than there are places, and few enough for the hints.
        for n in (1..=400).cycle().take(4000) {
            example.start.ip = start.ip + 16 * n;
            example.words[3] = example.start.ip;
            example.steps[0] = Step::untold(example.start.ip, example.at(4));
            if example.recalled(&example.start).is_none() {
                example.remember();
            }
            example.words[3] = start.ip;
            assert!(example.recalled(&start).is_some(), "{n}");
        }
    }
}
