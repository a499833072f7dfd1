//! The table of compiled conditions: words under sequence locks.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use usertrace_expression::Words;

/// Words of a bank. Their offsets fit into the bits that a call site has for one.
const WORDS: usize = 1 << 15;

/// The first word that is used: call sites without conditions have offset 0.
const FIRST: u32 = 1;

/// The bit of a call site's decision that says in which bank it is. The bits below are its offset.
const BANK: u16 = 1 << 15;

/// The compiled conditions of all traces. All zeros: there are none.
///
/// There are two banks. Call sites refer to one, while an update fills the other. So threads go on
/// with the earlier conditions until the later ones are complete.
#[derive(Debug)]
#[repr(C)]
pub(in crate::runtime) struct ConditionTable {
    banks: [Bank; 2],
    /// The bank that was filled last.
    last: AtomicU32,
}

impl ConditionTable {
    /// The bank of a decision, and its offset there.
    #[inline(always)]
    pub(super) fn find(&self, decision: u16) -> (&Bank, usize) {
        let bank = &self.banks[usize::from(decision / BANK)];
        (bank, usize::from(decision % BANK))
    }

    /// The bank to fill, which is the other one from now on, and what decisions in it have beside
    /// their offset. Only the holder of the state's lock may call this.
    pub(super) fn other(&self) -> (&Bank, u16) {
        let other = 1 - (self.last.load(Ordering::Relaxed) & 1);
        self.last.store(other, Ordering::Relaxed);
        (&self.banks[other as usize], BANK * other as u16)
    }
}

/// Compiled conditions under a sequence lock.
///
/// Only the holder of the state's lock stores here.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Bank {
    /// Odd: a store is in progress.
    sequence: AtomicU32,
    /// The offset of the first free word.
    end: AtomicU32,
    words: [AtomicU32; WORDS],
}

impl Bank {
    /// A word; 0 if the bank has none there.
    #[inline]
    pub(super) fn word(&self, at: usize) -> u32 {
        // Relaxed: `read` checks afterwards that no word was replaced.
        let word = self.words.get(at);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Several words; zeros if the bank does not have all of them.
    #[inline(always)]
    pub(super) fn words<const N: usize>(&self, at: usize) -> [u32; N] {
        let words = self.words.get(at..).and_then(<[_]>::first_chunk::<N>);
        // Relaxed: as in `word`.
        words.map_or([0; N], |words| {
            std::array::from_fn(|n| words[n].load(Ordering::Relaxed))
        })
    }

    /// The words from an offset on.
    #[inline]
    pub(super) fn part(&self, start: usize) -> TablePart<'_> {
        TablePart { bank: self, start }
    }

    /// The result of a read, if that saw one state of the bank.
    #[inline(always)]
    pub(super) fn read<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        // Pairs with the store in `finish`: the reads below see what was stored before.
        let before = self.sequence.load(Ordering::Acquire);
        if !before.is_multiple_of(2) {
            return None;
        }
        let value = read();
        // Pairs with the fence in `begin`: if `read` saw one of the words of a newer store, the
        // next load sees its sequence.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(value)
    }

    /// Begins a store, and empties the bank.
    pub(super) fn begin(&self) {
        let before = self.sequence.load(Ordering::Relaxed) & !1;
        self.sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the fence in `read`.
        fence(Ordering::Release);
        self.end.store(FIRST, Ordering::Relaxed);
    }

    /// Ends a store.
    pub(super) fn finish(&self) {
        let odd = self.sequence.load(Ordering::Relaxed) | 1;
        // Pairs with the first load in `read`.
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// The offset of the first free word.
    pub(super) fn end(&self) -> u32 {
        self.end.load(Ordering::Relaxed)
    }

    /// Removes the words from an offset on.
    pub(super) fn truncate(&self, end: u32) {
        self.end.store(end, Ordering::Relaxed);
    }

    /// Appends a word, between `begin` and `finish`. None if the bank is full.
    pub(super) fn push(&self, word: u32) -> Option<()> {
        let end = self.end();
        self.words.get(end as usize)?.store(word, Ordering::Relaxed);
        self.end.store(end + 1, Ordering::Relaxed);
        Some(())
    }

    /// Replaces a word, between `begin` and `finish`.
    pub(super) fn set(&self, at: usize, word: u32) {
        if let Some(place) = self.words.get(at) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

/// The words of a bank from an offset on.
#[derive(Clone, Copy, Debug)]
pub(super) struct TablePart<'a> {
    bank: &'a Bank,
    start: usize,
}

impl Words for TablePart<'_> {
    #[inline]
    fn word(self, at: usize) -> u32 {
        self.bank.word(self.start + at)
    }
}
