//! Which events this process writes, where somebody said so by its control channel.
//!
//! The fallback's trace has its rules from the environment, in memory that all processes of a
//! family share. What is said to one process later stands here, in place of these rules.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use usertrace_sys::filter::Rules;
use usertrace_sys::limits::RULES_LEN;

/// Rules, or none. All zeros: none.
///
/// One thread at a time stores them. Whoever reads them meanwhile notices.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Wanted {
    /// 0: there are none. Odd: they are being stored.
    sequence: AtomicU32,
    len: AtomicU32,
    words: [AtomicU32; RULES_LEN / 4],
}

/// How often to read rules that change meanwhile.
const TRIES: usize = 3;

impl Wanted {
    pub(super) const fn new() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            len: AtomicU32::new(0),
            words: [const { AtomicU32::new(0) }; RULES_LEN / 4],
        }
    }

    /// Stores rules, as the info area would have them. An update must follow.
    #[cfg(feature = "fallback")]
    pub(super) fn set(&self, rules: &[u8]) {
        let before = self.sequence.load(Ordering::Relaxed) & !1;
        self.sequence.store(before + 1, Ordering::Relaxed);
        // Pairs with the fence in `copy`: whoever reads one of the words below sees that they
        // change.
        fence(Ordering::Release);
        self.len.store(rules.len() as u32, Ordering::Relaxed);
        for (word, bytes) in self.words.iter().zip(rules.chunks(4)) {
            let mut value = [0; 4];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u32::from_ne_bytes(value), Ordering::Relaxed);
        }
        // 0 stays for none. Pairs with the first load in `copy`.
        let after = before.wrapping_add(2).max(2);
        self.sequence.store(after, Ordering::Release);
    }

    /// The 4 bytes at `at`; zeros behind the end.
    fn word(&self, at: usize) -> [u8; 4] {
        let word = self.words.get(at / 4);
        word.map_or([0; 4], |word| word.load(Ordering::Relaxed).to_ne_bytes())
    }

    /// Copies them for whoever stores them. False: there are none.
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

    /// Copies them, if they are others than those of which `seen` was returned. Nothing if not.
    pub(super) fn copy(&self, seen: u32, rules: &mut Rules) -> Option<u32> {
        for _ in 0..TRIES {
            let sequence = self.sequence.load(Ordering::Acquire);
            // Whoever is storing them makes an update afterwards.
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
        // They may be half of one and half of the other. The update that follows finds them whole.
        rules.clear();
        Some(1)
    }
}

#[cfg(all(test, feature = "fallback"))]
mod tests {
    use super::*;
    use usertrace_sys::filter::{Filter, add_rule};

    fn rules(words: &str) -> Filter {
        let mut filter = Filter::new();
        for word in words.split(' ') {
            add_rule(&mut filter, word.as_bytes()).unwrap();
        }
        filter
    }

    #[test]
    fn the_last_rules_are_copied_once() {
        let wanted = Box::new(Wanted::new());
        // SAFETY: zeros are no rules.
        let mut copy: Box<Rules> = unsafe { Box::new(std::mem::zeroed()) };
        assert_eq!(wanted.copy(0, &mut copy), None);
        wanted.set(rules("a:* b").rules());
        let seen = wanted.copy(0, &mut copy).unwrap();
        assert_eq!(wanted.copy(seen, &mut copy), None);
        let accepts = |copy: &Rules, event: &str| {
            let name = event.split(':').next_back().unwrap();
            copy.accept(event.as_bytes(), name.as_bytes()).by(0)
        };
        assert!(accepts(&copy, "a:x") && accepts(&copy, "c:b") && !accepts(&copy, "c:d"));
        wanted.set(rules("c:d").rules());
        let again = wanted.copy(seen, &mut copy).unwrap();
        assert_ne!(again, seen);
        assert!(accepts(&copy, "c:d") && !accepts(&copy, "a:x"));
    }
}
