//! The triggers that an event may fire, as they are stored in the table.

use usertrace_sys::limits::SLOTS;
use usertrace_sys::uapi::LTT_MAX_TRIGGERS;

use super::table::Bank;

/// Triggers of all traces.
const MAX: usize = SLOTS * LTT_MAX_TRIGGERS;

// The word of a list has 8 bits for its length.
const _: () = assert!(MAX < 1 << 8);

/// A trigger that an event may fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TriggerEntry {
    /// The slot of its trace.
    pub(super) slot: u8,
    pub(super) number: u8,
    /// The offset of what decides, in the bank of the list; 0: any event fires it.
    pub(super) decision: u16,
}

impl TriggerEntry {
    pub(super) fn to_word(self) -> u32 {
        u32::from(self.slot) << 24 | u32::from(self.number) << 16 | u32::from(self.decision)
    }

    fn of_word(word: u32) -> Self {
        Self {
            slot: (word >> 24) as u8,
            number: (word >> 16) as u8,
            decision: word as u16,
        }
    }
}

/// Triggers: those that an event may fire, or those that it fires.
///
/// In the table, the words of a list are:
///
/// 1. the next one of its chain, as in a decision (16 bits), and the number of triggers (8);
/// 2. a word that tells it from a decision;
/// 3. the [triggers](TriggerEntry).
#[derive(Debug)]
pub(in crate::runtime) struct TriggerList {
    len: usize,
    words: [u32; MAX],
}

impl TriggerList {
    pub(in crate::runtime) const fn new() -> Self {
        Self {
            len: 0,
            words: [0; MAX],
        }
    }

    pub(in crate::runtime) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, entry: TriggerEntry) {
        if let Some(place) = self.words.get_mut(self.len) {
            *place = entry.to_word();
            self.len += 1;
        }
    }

    pub(in crate::runtime) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = TriggerEntry> {
        let words = self.words.iter().take(self.len);
        words.map(|word| TriggerEntry::of_word(*word))
    }

    /// The slot and the number of each trigger.
    pub(in crate::runtime) fn triggers(&self) -> impl Iterator<Item = (usize, u8)> {
        self.entries()
            .map(|entry| (usize::from(entry.slot), entry.number))
    }
}

/// The triggers of the list at an offset of a bank.
pub(super) fn stored(bank: &Bank, at: usize) -> impl Iterator<Item = TriggerEntry> {
    let len = (bank.word(at) >> 16 & 0xff) as usize;
    let words = (0..len.min(MAX)).map(move |n| bank.word(at + 2 + n));
    words.map(TriggerEntry::of_word)
}
