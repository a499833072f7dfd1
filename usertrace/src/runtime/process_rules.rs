//! The event rules that a control channel sets for this process.
//!
//! The rules of the fallback's trace come from the environment, and lie in memory that all
//! processes of a family share. Rules that a control channel sets for one process stand here, and
//! replace those.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use usertrace_sys::filter::Rules;
use usertrace_sys::limits::RULES_LEN;

/// Rules for one process, or none: a sequence lock. All zeros means no rules.
///
/// Only one thread at a time may store rules. Readers detect a concurrent store.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ProcessRules {
    /// 0: no rules were ever set. Odd: a store is in progress.
    sequence: AtomicU32,
    len: AtomicU32,
    words: [AtomicU32; RULES_LEN / 4],
}

/// Attempts to read rules that change meanwhile.
const TRIES: usize = 3;

impl ProcessRules {
    pub(super) const fn new() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            len: AtomicU32::new(0),
            words: [const { AtomicU32::new(0) }; RULES_LEN / 4],
        }
    }

    /// Stores rules, in the format of the info area. The caller must start an update afterwards.
    #[cfg(feature = "fallback")]
    pub(super) fn set(&self, rules: &[u8]) {
        let before = self.sequence.load(Ordering::Relaxed) & !1;
        self.sequence.store(before + 1, Ordering::Relaxed);
        // Pairs with the fence in `copy`: a reader that sees one of the words below also sees the
        // odd sequence.
        fence(Ordering::Release);
        self.len.store(rules.len() as u32, Ordering::Relaxed);
        for (word, bytes) in self.words.iter().zip(rules.chunks(4)) {
            let mut value = [0; 4];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u32::from_ne_bytes(value), Ordering::Relaxed);
        }
        // Skips 0, which means no rules. Pairs with the first load in `copy`.
        let after = before.wrapping_add(2).max(2);
        self.sequence.store(after, Ordering::Release);
    }

    /// The 4 bytes at offset `at`; zeros beyond the end.
    fn word(&self, at: usize) -> [u8; 4] {
        let word = self.words.get(at / 4);
        word.map_or([0; 4], |word| word.load(Ordering::Relaxed).to_ne_bytes())
    }

    /// Copies the rules, for the thread that may store them. False: there are none.
    #[cfg(feature = "fallback")]
    pub(super) fn read(&self, filter: &mut usertrace_sys::filter::Filter) -> bool {
        if self.sequence.load(Ordering::Relaxed) == 0 {
            return false;
        }
        filter.copy(self.len.load(Ordering::Relaxed) as usize, |at| {
            self.word(at)
        });
        true
    }

    /// Copies the rules if their sequence is not `seen`, and returns the new one; none if they are
    /// unchanged or being stored.
    pub(super) fn copy(&self, seen: u32, rules: &mut Rules) -> Option<u32> {
        for _ in 0..TRIES {
            let sequence = self.sequence.load(Ordering::Acquire);
            // The storing thread starts an update afterwards.
            if sequence == seen || !sequence.is_multiple_of(2) {
                return None;
            }
            let len = self.len.load(Ordering::Relaxed) as usize;
            rules.copy(len, |at| self.word(at));
            // Pairs with the fence in `set`.
            fence(Ordering::Acquire);
            if self.sequence.load(Ordering::Relaxed) == sequence {
                return Some(sequence);
            }
        }
        // The copy may be torn. The update that follows the store reads consistent rules.
        rules.clear();
        Some(1)
    }
}

#[cfg(all(test, feature = "fallback"))]
mod tests {
    use super::*;
    use usertrace_sys::filter::{Filter, add_rule, written};

    fn rules(words: &str) -> Filter {
        let mut filter = Filter::new();
        for word in written(words.as_bytes(), |byte| byte == b' ') {
            add_rule(&mut filter, &word).unwrap();
        }
        filter
    }

    #[test]
    fn new_rules_are_copied_once() {
        let process_rules = Box::new(ProcessRules::new());
        // SAFETY: zeros are no rules.
        let mut copy: Box<Rules> = unsafe { Box::new(std::mem::zeroed()) };
        assert_eq!(process_rules.copy(0, &mut copy), None);
        process_rules.set(rules("a:* b").rules());
        let seen = process_rules.copy(0, &mut copy).unwrap();
        assert_eq!(process_rules.copy(seen, &mut copy), None);
        let accepts = |copy: &Rules, event: &str| {
            let name = event.split(':').next_back().unwrap();
            copy.accept(event.as_bytes(), name.as_bytes()).by(0)
        };
        assert!(accepts(&copy, "a:x") && accepts(&copy, "c:b") && !accepts(&copy, "c:d"));
        process_rules.set(rules("c:d").rules());
        let again = process_rules.copy(seen, &mut copy).unwrap();
        assert_ne!(again, seen);
        assert!(accepts(&copy, "c:d") && !accepts(&copy, "a:x"));
    }
}
