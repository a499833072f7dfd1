//! Remembers the frames of a thread's last walk. Most of them are there at the next one, too: then
//! two words of the stack tell that a frame's caller is the same, and no rule is looked up.
//!
//! A frame's caller follows from the frame's registers, the rule of its instruction, and the words
//! that the rule names. As long as no code is loaded or unloaded, an instruction has one rule. So
//! the same address, stack pointer and words make the same caller; the frame pointer matters only
//! if the rule is relative to it.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::addresses::Addresses;
use super::known_memory::{KnownMemory, WORD};
use super::registers::Registers;
use super::stack_memo::StackMemo;
use super::step::{
    self, ADDRESS, ADDRESS_BITS, BY_FRAME, Frame, Step, VERIFIABLE, without_signature,
};
use super::told_stack::Start;

/// Frames that are remembered.
const FRAMES: usize = 32;
/// New frames inside of one that the last walk came to. If there are more, all are new.
const MAX_NEW: usize = 12;

/// The bit of an extent that says that the outermost frame has no caller.
const WHOLE: u64 = 1 << 63;

/// What a thread remembers of its walks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walks<'a> {
    pub(crate) last: &'a LastWalk,
    /// Whole stacks, if it is not one of too many threads.
    pub(crate) stacks: Option<&'a StackMemo>,
}

impl Walks<'_> {
    /// Whether an earlier walk came to the stack that begins there. If so, `append` got the words
    /// of its addresses last, from the innermost on, and found all of them [`still`] in the memory
    /// that it got, too.
    #[inline(always)]
    pub(crate) fn recall(
        self,
        start: &Start,
        memory: KnownMemory,
        append: impl FnMut(&[AtomicU64], KnownMemory) -> bool,
    ) -> bool {
        let last = self.last;
        // Whether a walk has been left is seen by its stack's end, so that must be this one's.
        if last.owner.load(Ordering::Relaxed) != 0
            || last.end.load(Ordering::Relaxed) != memory.end() as u64
        {
            return false;
        }
        let Some(stacks) = self.stacks else {
            return false;
        };
        let taken = Taken::new(last, start.stack_pointer);
        stacks.recall(start, memory, append) && taken.is_own()
    }
}

/// A thread's last walk, in use from a stack pointer on.
#[derive(Debug)]
struct Taken<'a> {
    last: &'a LastWalk,
    stack_pointer: u64,
}

impl<'a> Taken<'a> {
    /// Signal handlers find it taken from now on: they change nothing meanwhile.
    #[inline(always)]
    fn new(last: &'a LastWalk, stack_pointer: usize) -> Self {
        let stack_pointer = stack_pointer as u64;
        last.owner.store(stack_pointer, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Self {
            last,
            stack_pointer,
        }
    }

    /// Whether nobody has taken it since. A signal handler whose own stack lies further up in the
    /// same one finds this walk abandoned, and changes the frames.
    #[inline(always)]
    fn is_own(&self) -> bool {
        // After all loads of frames, whose result it decides about.
        compiler_fence(Ordering::SeqCst);
        self.last.owner.load(Ordering::Relaxed) == self.stack_pointer
    }
}

impl Drop for Taken<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Signal handlers find it free only when all is loaded and stored.
        compiler_fence(Ordering::SeqCst);
        self.last.owner.store(0, Ordering::Relaxed);
    }
}

/// The frames of the last walk of a thread. Zeros are valid: there are none.
///
/// Only the thread uses it, and its signal handlers: these find it taken if they interrupted a
/// walk, and do without.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct LastWalk {
    /// A ring, from inner to outer frames.
    frames: [Frame; FRAMES],
    /// Frames of the walk that uses it now, from inner to outer, as long as it has not met these.
    new: [Frame; MAX_NEW],
    /// The stack pointer of the walk that uses it now; 0: none does.
    owner: AtomicU64,
    /// The changes to loaded code that the frames are as of; in the upper half the place of the
    /// innermost frame, the number of frames, and [`WHOLE`].
    extent: AtomicU64,
    /// The end of the stack.
    end: AtomicU64,
}

impl LastWalk {
    /// Forgets all frames, for the calling thread, which takes it from a thread that ended.
    pub(crate) fn forget(&self) {
        self.extent.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Whether it has frames.
    #[cfg(test)]
    pub(crate) fn is_used(&self) -> bool {
        self.extent.load(Ordering::Relaxed) >> 40 & 0xff > 1
    }

    /// Changes one of its words, but not whether it is in use, to a random one or by a bit.
    #[cfg(test)]
    pub(crate) fn damage(&self, mut random: impl FnMut() -> u64) {
        let frames = self.frames.as_flattened();
        let place = match random() as usize % 8 {
            0 => &self.extent,
            1 => &self.end,
            _ => &frames[random() as usize % frames.len()],
        };
        step::damage(place, random);
    }

    /// Takes it for a walk that begins at a stack pointer, on a stack with this end.
    pub(super) fn take(
        &self,
        stack_pointer: usize,
        end: usize,
        changes: u32,
    ) -> Option<Frames<'_>> {
        let owner = self.owner.load(Ordering::Relaxed);
        let is_of_stack = self.end.load(Ordering::Relaxed) == end as u64;
        // A walk further down has ended: a signal handler may have left it by a long jump.
        let is_abandoned = owner != 0 && is_of_stack && stack_pointer as u64 > owner;
        if owner != 0 && !is_abandoned || end as u64 > ADDRESS {
            return None;
        }
        let taken = Taken::new(self, stack_pointer);
        let extent = self.extent.load(Ordering::Relaxed);
        let is_valid = is_of_stack && !is_abandoned && extent as u32 == changes;
        let [inner, len] = [32, 40].map(|shift| usize::from((extent >> shift) as u8));
        self.end.store(end as u64, Ordering::Relaxed);
        Some(Frames {
            taken,
            changes,
            inner: inner % FRAMES,
            len: if is_valid { len.min(FRAMES) } else { 0 },
            is_whole: extent & WHOLE != 0,
        })
    }
}

/// The frames of the last walk, in use. Number 0 is the innermost.
pub(super) struct Frames<'a> {
    taken: Taken<'a>,
    changes: u32,
    /// The place of the innermost frame.
    inner: usize,
    len: usize,
    /// Whether the outermost frame has no caller.
    is_whole: bool,
}

impl Frames<'_> {
    /// Whether nobody has taken them since.
    #[inline(always)]
    pub(super) fn is_own(&self) -> bool {
        self.taken.is_own()
    }

    #[inline]
    fn frame(&self, number: usize) -> &Frame {
        &self.taken.last.frames[(self.inner + number) % FRAMES]
    }

    /// Whether a frame has a step's stack pointer; if so, whether it has its address, too.
    #[inline(always)]
    fn meets(&self, number: usize, step: Step) -> Option<bool> {
        let frame = (number < self.len).then(|| self.frame(number))?;
        let [ip, stack_pointer] = [0, 1].map(|word| frame[word].load(Ordering::Relaxed) & ADDRESS);
        (stack_pointer == step.stack_pointer()).then_some(ip == step.ip())
    }

    /// Follows the frames outside of a number as long as they are still the callers, and appends
    /// their addresses. The registers are those of the frame with this number, whose address and
    /// stack pointer have not changed. Returns the number of the last one.
    #[inline(always)]
    pub(super) fn follow(
        &self,
        number: usize,
        registers: &mut Registers,
        memory: KnownMemory,
        addresses: &mut Addresses<'_>,
    ) -> usize {
        let Registers {
            mut ip,
            mut stack_pointer,
            mut frame_pointer,
            ..
        } = *registers;
        let (frames, inner) = (&self.taken.last.frames, self.inner);
        let known = self.len.saturating_sub(number + 1);
        let mut at = inner + number;
        let followed = addresses.push_all(known, || {
            at += 1;
            let frame = &frames[at % FRAMES];
            let word = |at: usize| frame[at].load(Ordering::Relaxed);
            let (first, second) = (word(0), word(1));
            let next = (first & ADDRESS) as usize;
            let above = (second & ADDRESS) as usize;
            if memory.word(above.wrapping_sub(WORD)).map(without_signature) != Some(next)
                || first & VERIFIABLE == 0
                || first & BY_FRAME != 0 && frame_pointer as u64 != word(3)
            {
                return None;
            }
            let below = (second >> ADDRESS_BITS) as usize;
            if below != 0 {
                let saved = word(2) as usize;
                if memory.word(above.wrapping_sub(below * WORD)) != Some(saved) {
                    return None;
                }
                frame_pointer = saved;
            }
            (ip, stack_pointer) = (next, above);
            Some(ip)
        });
        if !self.is_own() {
            addresses.drop_last(followed);
            return number;
        }
        *registers = Registers::of_caller(ip, stack_pointer, frame_pointer);
        number + followed
    }

    /// The frames of the walk up to one with a number.
    pub(super) fn up_to(&self, number: usize) -> impl Iterator<Item = Step> + Clone {
        (0..=number).map(|number| Step::load(self.frame(number)))
    }

    /// Whether a frame has no caller, as is known of the outermost one.
    pub(super) fn is_end(&self, number: usize) -> bool {
        self.is_whole && number + 1 == self.len
    }

    /// No frame is outside of this one: it has no caller if `is_end`.
    pub(super) fn end(&mut self, number: usize, is_end: bool) {
        self.len = number + 1;
        self.is_whole = is_end;
    }

    /// Looks for the frame that a walk has come to, after `count` new ones, by its stack pointer.
    /// If there is one, the new ones become its inner ones. Returns whether its address is the
    /// same.
    #[inline(always)]
    pub(super) fn meet(&mut self, count: usize, step: Step) -> Option<bool> {
        let below =
            |frame: &Frame| frame[1].load(Ordering::Relaxed) & ADDRESS < step.stack_pointer();
        while self.len > 0 && below(self.frame(0)) {
            self.inner += 1;
            self.len -= 1;
        }
        let is_same = self.meets(0, step)?;
        if !is_same && self.len == 1 {
            self.is_whole = false;
        }
        step.store(self.frame(0));
        for number in (0..count).rev() {
            self.inner += FRAMES - 1;
            match self.len {
                FRAMES => self.is_whole = false,
                _ => self.len += 1,
            }
            step::copy(&self.taken.last.new[number % MAX_NEW], self.frame(0));
        }
        Some(is_same)
    }

    /// Stores a new frame behind `count` others. False if there is no room, or nothing that they
    /// could be added to.
    #[inline(always)]
    pub(super) fn add_new(&mut self, count: usize, step: Step) -> bool {
        match self.taken.last.new.get(count).filter(|_| self.len > 0) {
            Some(place) => {
                step.store(place);
                true
            }
            None => false,
        }
    }

    /// Remembers the `count` new frames and another one, and no others. Returns the number of that
    /// one.
    #[cold]
    #[inline(never)]
    pub(super) fn replace(&mut self, count: usize, step: Step) -> usize {
        self.replace_all(count);
        self.len = count + 1;
        step.store(self.frame(count));
        count
    }

    /// Remembers the `count` new frames, and no others.
    #[cold]
    #[inline(never)]
    pub(super) fn replace_all(&mut self, count: usize) {
        self.len = count;
        self.is_whole = false;
        for (number, new) in self.taken.last.new[..count].iter().enumerate() {
            step::copy(new, self.frame(number));
        }
    }

    /// Remembers a frame as the next one outside of those before. Returns whether its address was
    /// the same; none if there are too many.
    #[inline(always)]
    pub(super) fn replace_outer(&mut self, number: usize, step: Step) -> Option<bool> {
        let meets = self.meets(number, step);
        if meets.is_none() {
            // What is further out does not follow from this one.
            self.end(number - 1, false);
            if number == FRAMES {
                return None;
            }
            self.len += 1;
        }
        let is_same = meets == Some(true);
        if !is_same && number + 1 == self.len {
            self.is_whole = false;
        }
        step.store(self.frame(number));
        Some(is_same)
    }
}

impl Drop for Frames<'_> {
    fn drop(&mut self) {
        let [inner, len] = [(self.inner % FRAMES, 32), (self.len, 40)]
            .map(|(value, shift)| (value as u64) << shift);
        let whole = if self.is_whole { WHOLE } else { 0 };
        let extent = match self.is_own() {
            true => u64::from(self.changes) | inner | len | whole,
            // The frames are those of two walks.
            false => 0,
        };
        self.taken.last.extent.store(extent, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::step::MAX_BELOW;

    fn remember(last: &LastWalk, stack_pointer: usize, end: usize, changes: u32) {
        let mut frames = last.take(stack_pointer, end, changes).expect("it is free");
        frames.replace(0, Step::untold(1, stack_pointer));
    }

    /// A signal handler that interrupts a walk does without, and one that has left a walk by a long
    /// jump does not end that for ever.
    #[test]
    fn walks_are_not_interrupted() {
        let last = LastWalk::default();
        remember(&last, 0x5000, 0x9000, 1);
        let frames = last.take(0x4000, 0x9000, 1).unwrap();
        assert_eq!(frames.len, 1);
        for stack_pointer in [0x4000, 0x3ff8, 0x1000] {
            assert!(last.take(stack_pointer, 0x9000, 1).is_none(), "a handler");
        }
        assert!(
            last.take(0x8000, 0xa000, 1).is_none(),
            "a handler on another stack"
        );
        std::mem::forget(frames);
        let frames = last
            .take(0x4008, 0x9000, 1)
            .expect("the walk below has been left");
        assert_eq!(frames.len, 0, "it may have left anything");
        drop(frames);
        assert!(last.take(0x1000, 0x9000, 1).is_some());
    }

    /// A handler's own stack may lie further up in the stack that it interrupted.
    #[test]
    fn walks_that_were_taken_for_abandoned_follow_nothing() {
        let example = Example::new();
        let (low, end) = (example.at(2), example.at(16));
        let frames = example.last.take(low, end, 0).unwrap();
        let followed = |frames: &Frames<'_>| {
            // SAFETY: the array stays.
            let memory = unsafe { KnownMemory::new(example.at(0), end) }.unwrap();
            let mut registers = Registers::of_caller(0x10002, low, 77);
            let mut places = [const { std::mem::MaybeUninit::uninit() }; 8];
            let mut addresses = Addresses::new(&mut places);
            let last = frames.follow(0, &mut registers, memory, &mut addresses);
            (last, addresses.get().len(), registers.ip)
        };
        assert_eq!(followed(&frames), (3, 3, 0x1000c));
        drop(
            example
                .last
                .take(example.at(5), end, 0)
                .expect("it looks abandoned"),
        );
        assert_eq!(followed(&frames), (0, 0, 0x10002));
        drop(frames);
        assert_eq!(example.last.take(low, end, 0).unwrap().len, 0);
    }

    /// A handler that interrupts a walk does not touch the stacks, either.
    #[test]
    fn stacks_are_not_recalled_during_a_walk() {
        let words = Box::new([0usize, 0x1234, 0, 0x5678, 0, 0, 0, 0]);
        let at = |word| words.as_ptr().expose_provenance() + WORD * word;
        // SAFETY: the array stays.
        let memory = unsafe { KnownMemory::new(at(0), at(8)) }.unwrap();
        let start = Start {
            ip: 0x5678,
            stack_pointer: at(2),
            frame_pointer: None,
            changes: 0,
            max: 8,
        };
        let (last, stacks) = (LastWalk::default(), StackMemo::default());
        for _ in 0..2 {
            let mut frames = last.take(at(2), at(8), 0).unwrap();
            frames.replace(0, Step::untold(0x5678, at(4)));
            stacks.remember(&start, memory, frames.up_to(0), || true);
        }
        let walks = Walks {
            last: &last,
            stacks: Some(&stacks),
        };
        let recalled = || {
            let mut first = None;
            let is_recalled = walks.recall(&start, memory, |words, memory| {
                first = crate::unwind::still(&words[0], memory);
                true
            });
            first.filter(|_| is_recalled)
        };
        assert_eq!(recalled(), Some(0x5678));
        let frames = last.take(at(3), at(8), 0).unwrap();
        assert_eq!(recalled(), None);
        drop(frames);
        assert_eq!(recalled(), Some(0x5678));
        // After a walk on another stack, one on this stack comes first.
        drop(last.take(at(2), at(8) + 4096, 0).unwrap());
        assert_eq!(recalled(), None);
        drop(last.take(at(2), at(8), 0).unwrap());
        assert_eq!(recalled(), Some(0x5678));
    }

    #[test]
    fn other_code_and_other_stacks_forget_all() {
        let last = LastWalk::default();
        let known = |end, changes| last.take(0x5000, end, changes).unwrap().len;
        remember(&last, 0x5000, 0x9000, 1);
        assert_eq!(known(0x9000, 1), 1);
        assert_eq!([known(0x9000, 2), known(0x9000, 1)], [0; 2]);
        remember(&last, 0x5000, 0x9000, 1);
        assert_eq!([known(0xa000, 1), known(0x9000, 1)], [0; 2]);
        remember(&last, 0x5000, 0x9000, 1);
        last.forget();
        assert_eq!(known(0x9000, 1), 0);
        assert!(last.take(0x5000, 1 << ADDRESS_BITS, 1).is_none());
    }

    /// A stack of 16 words, with a walk of three frames from the word 2 on: the caller's frame
    /// begins at 5, and has been found by the stack pointer; the next one at 9, by the frame
    /// pointer that was saved at 3; the last one at 12.
    struct Example {
        words: [usize; 16],
        last: LastWalk,
    }

    impl Example {
        fn at(&self, word: usize) -> usize {
            self.words.as_ptr().expose_provenance() + WORD * word
        }

        fn new() -> Box<Self> {
            let mut example = Box::new(Self {
                words: [0; 16],
                last: LastWalk::default(),
            });
            let frame = example.at(7);
            for (word, value) in [(4, 0x10005), (3, frame), (8, 0x10009), (11, 0x1000c)] {
                example.words[word] = value;
            }
            let at = |word| example.at(word);
            let mut frames = example.last.take(at(2), at(16), 0).unwrap();
            frames.replace(0, Step::untold(0x10002, at(2)));
            let told = |ip, word, saved, by_frame| Step::told(ip, at(word), saved, by_frame);
            for (number, step) in [
                told(0x10005, 5, Some((-2, frame)), None),
                told(0x10009, 9, None, Some(frame)),
                told(0x1000c, 12, None, None),
            ]
            .into_iter()
            .enumerate()
            {
                assert_eq!(frames.replace_outer(number + 1, step), Some(false));
            }
            drop(frames);
            example
        }

        /// The addresses that are still those of the callers, from a frame on.
        fn followed(&self, number: usize, frame_pointer: usize) -> Vec<usize> {
            let memory = self.words.as_ptr_range();
            let (low, end) = (memory.start.expose_provenance(), memory.end.addr());
            // SAFETY: the array stays.
            let memory = unsafe { KnownMemory::new(low, end) }.unwrap();
            let frames = self.last.take(self.at(2), self.at(16), 0).unwrap();
            let of = frames.frame(number);
            let [ip, sp] = [0, 1].map(|word| of[word].load(Ordering::Relaxed) & ADDRESS);
            let mut registers = Registers::of_caller(ip as usize, sp as usize, frame_pointer);
            let mut places = [const { std::mem::MaybeUninit::uninit() }; 8];
            let mut addresses = Addresses::new(&mut places);
            let last = frames.follow(number, &mut registers, memory, &mut addresses);
            let addresses: Vec<_> = (addresses.get().iter())
                .map(|&bytes| u64::from_ne_bytes(bytes) as usize)
                .collect();
            assert_eq!(last, number + addresses.len());
            assert_eq!(
                registers.ip,
                addresses.last().copied().unwrap_or(ip as usize)
            );
            addresses
        }
    }

    #[test]
    fn frames_are_followed_as_long_as_they_are_the_same() {
        let example = Example::new();
        let frame = example.at(7);
        assert_eq!(example.followed(0, 77), [0x10005, 0x10009, 0x1000c]);
        assert_eq!(example.followed(1, frame), [0x10009, 0x1000c]);
        // Another frame pointer leads elsewhere.
        assert!(example.followed(1, frame + 8).is_empty());
        // It is not needed any more.
        assert_eq!(example.followed(2, 77), [0x1000c]);
        assert!(example.followed(3, 77).is_empty());
        for (word, count) in [(4, 0), (3, 0), (8, 1), (11, 2), (7, 3)] {
            let mut example = Example::new();
            example.words[word] ^= 8;
            assert_eq!(example.followed(0, 77).len(), count, "word {word}");
        }
    }

    /// Frames that words of the stack cannot tell, or that are elsewhere, are not followed.
    #[test]
    fn frames_that_cannot_be_told_are_not_followed() {
        let example = Example::new();
        let at = |word| example.at(word);
        let far = -(MAX_BELOW as isize) - 1;
        for step in [
            Step::untold(0x10005, at(5)),
            Step::told(0x10005, at(5), Some((far, 0)), None),
            Step::told(0x10005, at(5), Some((0, 0x10005)), None),
            Step::told(0x10005, at(5), Some((1, 0)), None),
            Step::told(0x10005, at(0), None, None),
            Step::told(0x10005, at(17), None, None),
            Step::told(0x10005, at(5) + 1, None, None),
            Step::told(0x10006, at(5), None, None),
        ] {
            step.store(&example.last.frames[1]);
            assert!(example.followed(0, 77).is_empty(), "{step:x?}");
        }
    }

    /// Only the frame of which it is known has no caller.
    #[test]
    fn the_end_is_forgotten_with_its_frame() {
        let step = |number: usize, ip| Step::told(ip, 0x5000 + 8 * number, None, None);
        type Change = fn(&mut Frames<'_>, &dyn Fn(usize, usize) -> Step);
        let changed = |change: Change| {
            let last = LastWalk::default();
            let mut frames = last.take(0x5000, 0x9000, 0).unwrap();
            frames.replace(0, step(0, 1));
            for number in 1..4 {
                assert_eq!(frames.replace_outer(number, step(number, 1)), Some(false));
            }
            frames.end(3, true);
            drop(frames);
            let mut frames = last.take(0x5000, 0x9000, 0).unwrap();
            assert!(frames.is_end(3) && !frames.is_end(2));
            change(&mut frames, &step);
            drop(frames);
            let frames = last.take(0x5000, 0x9000, 0).unwrap();
            frames.is_end(frames.len - 1)
        };
        assert!(changed(|_, _| {}));
        assert!(changed(|frames, step| {
            assert_eq!(frames.replace_outer(3, step(3, 1)), Some(true));
            assert_eq!(frames.meet(0, step(3, 1)), Some(true));
        }));
        let changes: [Change; 7] = [
            |frames, step| {
                assert_eq!(frames.replace_outer(3, step(3, 2)), Some(false));
            },
            |frames, step| assert_eq!(frames.replace_outer(2, step(9, 1)), Some(false)),
            |frames, step| assert_eq!(frames.replace_outer(4, step(4, 1)), Some(false)),
            |frames, step| assert_eq!(frames.meet(0, step(3, 2)), Some(false)),
            |frames, _| frames.replace_all(2),
            |frames, step| {
                assert_eq!(frames.replace(0, step(0, 1)), 0);
            },
            // It is pushed out.
            |frames, step| {
                for number in 4..FRAMES {
                    frames.replace_outer(number, step(number, 1));
                }
                frames.end(FRAMES - 1, true);
                assert!(frames.add_new(0, step(0, 3)));
                assert_eq!(frames.meet(1, step(0, 1)), Some(true));
            },
        ];
        assert_eq!(changes.map(changed), [false; 7]);
    }
}
