//! Remembers the rules of instructions, for all threads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rule::Rule;
use super::spread::{place, spread};

/// The rules that are remembered are in sets. Each instruction has one possible set.
const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 11;
/// Rules of a set. If there were one, two instructions of a loop could take each other's place all
/// the time, and each rule would be looked up in the tables again.
const WAYS: usize = 4;
/// Bits of a key that say since which change of loaded code it is valid.
const STAMP_BITS: u32 = 16;

/// The rules of instructions. Zeros are an empty cache, whose pages take no memory.
///
/// Threads and signal handlers store and load both words of a place in any order. A word of one
/// rule with a word of another one is recognised: the first word is the key, changed by the second.
#[derive(Debug)]
pub(super) struct Cache([Set; SETS]);

/// The places of a set, in a cache line, from the newest rule to the oldest.
#[derive(Debug)]
#[repr(align(64))]
struct Set([[AtomicU64; 2]; WAYS]);

impl Cache {
    pub(super) const fn new() -> Self {
        Self([const { Set([const { [const { AtomicU64::new(0) }; 2] }; WAYS]) }; SETS])
    }

    /// The word of the rule of the instruction at an address, if it is remembered as of the last of
    /// `changes` changes.
    #[inline]
    pub(super) fn get(&self, address: usize, changes: u32) -> Option<u64> {
        let (set, key) = self.set(address, changes);
        // Relaxed: see the type.
        set.0.iter().find_map(|[of_key, of_rule]| {
            let word = of_rule.load(Ordering::Relaxed);
            (of_key.load(Ordering::Relaxed) ^ mixed(word) == key).then_some(word)
        })
    }

    /// Remembers a rule, in the place of the oldest one of its set.
    pub(super) fn put(&self, address: usize, changes: u32, rule: Rule) {
        let Some(word) = rule.word() else { return };
        let (set, key) = self.set(address, changes);
        let mut newer = [key ^ mixed(word), word];
        for place in &set.0 {
            let older = place.each_ref().map(|word| word.load(Ordering::Relaxed));
            for (word, value) in place.iter().zip(newer) {
                word.store(value, Ordering::Relaxed);
            }
            let [of_key, word] = older;
            // Also if it is as of another change.
            if (of_key ^ mixed(word) ^ key) >> STAMP_BITS == 0 {
                return;
            }
            newer = older;
        }
    }

    #[inline]
    fn set(&self, address: usize, changes: u32) -> (&Set, u64) {
        let address = address as u64;
        let set = place(spread(address), SET_BITS);
        let stamp = u64::from(changes) & ((1 << STAMP_BITS) - 1);
        (&self.0[set % SETS], address << STAMP_BITS | stamp)
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

    /// Addresses of one set.
    fn addresses_of_a_set<const N: usize>(cache: &Cache) -> [usize; N] {
        let first = 0x5555_0000;
        let set = |address| std::ptr::from_ref(cache.set(address, 0).0);
        let mut others = (first..).filter(|&address| set(address) == set(first));
        std::array::from_fn(|_| others.next().unwrap())
    }

    #[test]
    fn a_set_keeps_its_newest_rules() {
        static CACHE: Cache = Cache::new();
        let addresses: [_; WAYS + 1] = addresses_of_a_set(&CACHE);
        let found = || addresses.map(|address| get(&CACHE, address, 0).is_some());
        for &address in &addresses[..WAYS] {
            CACHE.put(address, 0, rule(1));
        }
        assert_eq!(found(), [true, true, true, true, false]);
        // Its rule is there already.
        CACHE.put(addresses[2], 0, rule(1));
        assert_eq!(found(), [true, true, true, true, false]);
        CACHE.put(addresses[4], 0, rule(1));
        assert_eq!(found(), [false, true, true, true, true]);
    }

    /// Threads that store rules of different instructions in the same set mix none of them up.
    #[test]
    fn words_of_two_rules_are_no_rule() {
        static CACHE: Cache = Cache::new();
        let addresses: [_; WAYS + 2] = addresses_of_a_set(&CACHE);
        let two = [addresses[0], addresses[1]];
        // They are the newest one after the other.
        let [first, other] = [(two[0], rule(3)), (two[1], rule(4))].map(|(address, rule)| {
            CACHE.put(address, 0, rule);
            let [newest, ..] = &CACHE.set(address, 0).0.0;
            newest.each_ref().map(|word| word.load(Ordering::Relaxed))
        });
        let empty = [0; 2];
        for mixed_up in [[first[0], other[1]], [other[0], first[1]]] {
            let places = &CACHE.set(two[0], 0).0.0;
            for (place, words) in places.iter().zip([mixed_up, empty, empty, empty]) {
                for (place, word) in place.iter().zip(words) {
                    place.store(word, Ordering::Relaxed);
                }
            }
            assert_eq!(two.map(|address| get(&CACHE, address, 0)), [None; 2]);
        }
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
