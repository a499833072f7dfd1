//! The table of compiled conditions: words under a sequence lock.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use usertrace_expression::Words;

/// Words of the table. Their offsets fit into the 16 bits that a call site has for one.
const WORDS: usize = 1 << 16;

/// The first word that is used: call sites without conditions have offset 0.
const FIRST: u32 = 1;

/// Attempts of a reader, if updates replace the table meanwhile.
const TRIES: usize = 8;

/// The compiled conditions of all traces. All zeros: there are none.
///
/// Only the holder of the state's lock stores here.
#[derive(Debug)]
#[repr(C)]
pub(in crate::runtime) struct ConditionTable {
    /// Odd: a store is in progress.
    sequence: AtomicU32,
    /// The offset of the first free word.
    end: AtomicU32,
    words: [AtomicU32; WORDS],
}

impl ConditionTable {
    /// A word; 0 if the table has none there.
    #[inline]
    pub(super) fn word(&self, at: usize) -> u32 {
        // Relaxed: `read` checks afterwards that no word was replaced.
        let word = self.words.get(at);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The words from an offset on.
    #[inline]
    pub(super) fn part(&self, start: usize) -> TablePart<'_> {
        TablePart { table: self, start }
    }

    /// The result of a read that saw one state of the table; none if the table changes all the
    /// time.
    #[inline]
    pub(super) fn read<T>(&self, mut read: impl FnMut() -> T) -> Option<T> {
        for _ in 0..TRIES {
            // Pairs with the store in `finish`: the reads below see what was stored before.
            let before = self.sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let value = read();
                // Pairs with the fence in `begin`: if `read` saw one of the words of a newer store,
                // the next load sees its sequence.
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return Some(value);
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Begins a store, and empties the table.
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

    /// Appends a word, between `begin` and `finish`. None if the table is full.
    pub(super) fn push(&self, word: u32) -> Option<()> {
        let end = self.end();
        self.words
            .get(end as usize)?
            .store(word, Ordering::Relaxed);
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

/// The words of a table from an offset on.
#[derive(Clone, Copy, Debug)]
pub(super) struct TablePart<'a> {
    table: &'a ConditionTable,
    start: usize,
}

impl Words for TablePart<'_> {
    #[inline]
    fn word(self, at: usize) -> u32 {
        self.table.word(self.start + at)
    }
}
