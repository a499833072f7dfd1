//! Remembers the rules of instructions, for all threads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rule::Rule;

/// Rules that are remembered. Each instruction has one possible place.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 13;
/// Bits of a key that say since which change of loaded code it is valid.
const STAMP_BITS: u32 = 16;

/// The rules of instructions. Zeros are an empty cache, whose pages take no memory.
///
/// Threads and signal handlers store and load both words of a place in any order. A word of one
/// rule with a word of another one is recognised: the first word is the key, changed by the second.
#[derive(Debug)]
pub(super) struct Cache([[AtomicU64; 2]; PLACES]);

impl Cache {
    pub(super) const fn new() -> Self {
        Self([const { [const { AtomicU64::new(0) }; 2] }; PLACES])
    }

    /// The word of the rule of the instruction at an address, if it is remembered as of the last of
    /// `changes` changes.
    #[inline]
    pub(super) fn get(&self, address: usize, changes: u32) -> Option<u64> {
        let (place, key) = self.place(address, changes);
        let [of_key, of_rule] = place;
        // Relaxed: see the type.
        let word = of_rule.load(Ordering::Relaxed);
        (of_key.load(Ordering::Relaxed) ^ mixed(word) == key).then_some(word)
    }

    pub(super) fn put(&self, address: usize, changes: u32, rule: Rule) {
        if let Some(word) = rule.word() {
            let ([of_key, of_rule], key) = self.place(address, changes);
            of_rule.store(word, Ordering::Relaxed);
            of_key.store(key ^ mixed(word), Ordering::Relaxed);
        }
    }

    #[inline]
    fn place(&self, address: usize, changes: u32) -> (&[AtomicU64; 2], u64) {
        let address = address as u64;
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACE_BITS);
        let stamp = u64::from(changes) & ((1 << STAMP_BITS) - 1);
        (
            &self.0[hash as usize % PLACES],
            address << STAMP_BITS | stamp,
        )
    }
}

/// Spreads the few bits in which rules differ, so that no two keys differ by them.
#[inline]
fn mixed(rule: u64) -> u64 {
    (rule ^ rule >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Base, Saved, TableRule};
    use super::*;

    fn get(cache: &Cache, address: usize, changes: u32) -> Option<Rule> {
        cache.get(address, changes).and_then(Rule::of_word)
    }

    fn rule(offset: i32) -> Rule {
        Rule::Table(TableRule {
            is_by_frame: false,
            offset,
            is_indirect: false,
            frame_pointer: None,
            return_address: Saved {
                base: Base::Cfa,
                offset: -1,
            },
            is_signal: false,
        })
    }

    #[test]
    fn changes_forget_rules() {
        static CACHE: Cache = Cache::new();
        let address = 0x7f00_1234_5678;
        assert_eq!(get(&CACHE, address, 7), None);
        CACHE.put(address, 7, rule(2));
        assert_eq!(get(&CACHE, address, 7), Some(rule(2)));
        for (address, changes) in [(address + 1, 7), (address, 8), (address, 6), (0, 7)] {
            assert_eq!(get(&CACHE, address, changes), None);
        }
        CACHE.put(address, 8, Rule::End);
        assert_eq!(get(&CACHE, address, 8), Some(Rule::End));
        assert_eq!(get(&CACHE, address, 7), None);
    }

    /// Threads that store rules of different instructions in the same place mix none of them up.
    #[test]
    fn words_of_two_rules_are_no_rule() {
        static CACHE: Cache = Cache::new();
        let place = |address| std::ptr::from_ref(CACHE.place(address, 0).0);
        let first = 0x5555_0000;
        let other = (1..)
            .map(|n| first + n)
            .find(|&other| place(other) == place(first));
        let addresses = [first, other.unwrap()];
        for address in addresses {
            CACHE.put(address, 0, rule(1));
        }
        // One word of each.
        let [of_key, of_rule] = CACHE.place(first, 0).0;
        CACHE.put(first, 0, rule(3));
        let key = of_key.load(Ordering::Relaxed);
        CACHE.put(addresses[1], 0, rule(4));
        let word = of_rule.load(Ordering::Relaxed);
        of_key.store(key, Ordering::Relaxed);
        assert_eq!(addresses.map(|address| get(&CACHE, address, 0)), [None; 2]);
        CACHE.put(first, 0, rule(3));
        of_rule.store(word, Ordering::Relaxed);
        assert_eq!(addresses.map(|address| get(&CACHE, address, 0)), [None; 2]);
        std::thread::scope(|scope| {
            for (number, address) in addresses.into_iter().enumerate() {
                scope.spawn(move || {
                    for _ in 0..100_000 {
                        let found = get(&CACHE, address, 0);
                        assert!(found.is_none_or(|found| found == rule(10 + number as i32)));
                        CACHE.put(address, 0, rule(10 + number as i32));
                    }
                });
            }
        });
    }
}
