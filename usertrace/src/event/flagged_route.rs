//! The fast path of an event that one trace counts, or that one comparison decides about.
//!
//! Such an event has a flag in its mask, and no [`Route`](crate::writer::Route). This word replaces
//! the route: it says what to do without a look at anything else of the call site. A sequence that
//! counts reads the word once more, after it saw that the channel is open. If the word is the same,
//! it is about the trace whose tables the channel has: an update clears the word before it opens
//! the channel for another trace.

use std::sync::atomic::{AtomicU32, Ordering};

use usertrace_sys::description::Integer;
use usertrace_sys::limits::{CHANNELS, SLOTS};

/// A bit of the word: a comparison decides. Otherwise, the event is counted.
const TEST: u32 = 1 << 31;

/// A bit of a place: there is one.
const PLACED: u16 = 1 << 9;
/// A bit of a place: the integer is signed.
const SIGNED: u16 = 1 << 8;
/// The lowest bits of the shifts of a place, in bytes. The index of the word is below.
const LEFT: u32 = 2;
const RIGHT: u32 = 5;

/// The lowest bits of the parts of a word that counts. The value's place is below the key's.
const KEY: u32 = 10;
const SLOT: u32 = 20;
const CHANNEL: u32 = 24;
const PLAIN: u32 = 1 << 28;

/// The lowest bits of the parts of a word that tests. The decision is below.
const TEST_SLOT: u32 = 16;
const TEST_CHANNEL: u32 = 20;
const TEST_PLAIN: u32 = 1 << 24;

const _: () = assert!(SLOTS <= 16 && CHANNELS <= 16);

/// What to do with an event; 0: it takes the slow path.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct FlaggedRoute(AtomicU32);

/// The tables of a channel that counts an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountTarget {
    /// The index of the channel. The control channel's counts nothing, so it is not 0.
    pub(crate) channel: u8,
    /// The cells have no values.
    pub(crate) is_plain: bool,
}

/// What the word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlaggedAction {
    /// The event is counted.
    Count {
        slot: u8,
        target: CountTarget,
        value: IntegerPlace,
        key: IntegerPlace,
    },
    /// The comparison of a decision rejects the event, or else it is recorded or counted.
    Test {
        slot: u8,
        decision: u16,
        /// None: the event is recorded.
        target: Option<CountTarget>,
    },
}

/// Words of a payload in which an [`IntegerPlace`] can be.
pub(crate) const FIRST_WORDS: usize = 4;

/// The first words of a payload. Missing ones are 0.
///
/// It is no array, so that the words stay in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstWords {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: u64,
    pub(crate) d: u64,
}

impl FirstWords {
    #[inline(always)]
    pub(crate) fn of(payload: &[u64]) -> Self {
        let word = |at: usize| payload.get(at).copied().unwrap_or(0);
        Self {
            a: word(0),
            b: word(1),
            c: word(2),
            d: word(3),
        }
    }

    /// The word whose index is in the lowest bits.
    #[inline(always)]
    fn word(self, index: u16) -> u64 {
        let (even, odd) = match index & 2 {
            0 => (self.a, self.b),
            _ => (self.c, self.d),
        };
        if index & 1 == 0 { even } else { odd }
    }

    pub(crate) fn to_array(self) -> [u64; FIRST_WORDS] {
        [self.a, self.b, self.c, self.d]
    }
}

/// Where the first words of a payload have an integer, if the event has such a field: a word, and
/// shifts to the left and to the right that leave only the integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntegerPlace(u16);

impl IntegerPlace {
    /// The event has no such field.
    pub(crate) const NONE: Self = Self(0);

    /// An integer at this offset. None if it is not a part of one of the first words, or has the
    /// other byte order.
    pub(crate) fn new(of: Integer, at: usize) -> Option<Self> {
        let (len, offset) = (usize::from(of.len), at % 8);
        let is_native = !of.big_endian || len == 1;
        if !is_native || !(1..=8 - offset).contains(&len) || at / 8 >= FIRST_WORDS {
            return None;
        }
        let (left, right) = (8 - offset - len, 8 - len);
        let signed = if of.signed { SIGNED } else { 0 };
        let place = (at / 8) | (left << LEFT) | (right << RIGHT);
        Some(Self(PLACED | signed | place as u16))
    }

    /// The integer, sign-extended if it is signed, and whether it is. None if the event has no such
    /// field.
    #[inline(always)]
    pub(crate) fn get(self, words: FirstWords) -> Option<(u64, bool)> {
        if self.0 & PLACED == 0 {
            return None;
        }
        let shift = |lowest: u32| u32::from(self.0 >> lowest & 7) * 8;
        let bits = words.word(self.0) << shift(LEFT);
        Some(match self.0 & SIGNED {
            0 => (bits >> shift(RIGHT), false),
            _ => ((bits.cast_signed() >> shift(RIGHT)).cast_unsigned(), true),
        })
    }

    /// A number below 1024; 0 for [`NONE`](Self::NONE).
    pub(crate) fn to_bits(self) -> u32 {
        self.0.into()
    }

    /// The inverse, which ignores higher bits.
    #[inline(always)]
    pub(crate) fn from_bits(word: u32) -> Self {
        Self(word as u16 & (2 * PLACED - 1))
    }
}

impl FlaggedAction {
    fn to_word(self) -> u32 {
        match self {
            Self::Count {
                slot,
                target,
                value,
                key,
            } => {
                let places = value.to_bits() | key.to_bits() << KEY;
                let plain = if target.is_plain { PLAIN } else { 0 };
                let channel = u32::from(target.channel) << CHANNEL;
                places | u32::from(slot) << SLOT | channel | plain
            }
            Self::Test {
                slot,
                decision,
                target,
            } => {
                let word = TEST | u32::from(slot) << TEST_SLOT | u32::from(decision);
                target.map_or(word, |target| {
                    let plain = if target.is_plain { TEST_PLAIN } else { 0 };
                    word | u32::from(target.channel) << TEST_CHANNEL | plain
                })
            }
        }
    }
}

/// A word that is not 0. It is not decoded as a whole, as an event needs only some parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlaggedWord(u32);

impl FlaggedWord {
    /// None if the word is 0.
    #[inline(always)]
    pub(crate) fn new(word: u32) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// The word itself.
    #[inline(always)]
    pub(crate) fn get(self) -> u32 {
        self.0
    }

    /// Whether the word is that of a [`FlaggedAction::Test`].
    #[inline(always)]
    pub(crate) fn is_test(self) -> bool {
        self.0 & TEST != 0
    }

    /// The slot of a word that counts.
    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        self.part(SLOT)
    }

    /// The channel of a word that counts.
    #[inline(always)]
    pub(crate) fn channel(self) -> usize {
        self.part(CHANNEL)
    }

    /// Whether the cells of a word that counts have no values.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.0 & PLAIN != 0
    }

    /// Where the value is, of a word that counts.
    #[inline(always)]
    pub(crate) fn value(self) -> IntegerPlace {
        IntegerPlace::from_bits(self.0)
    }

    /// Where the key is, of a word that counts.
    #[inline(always)]
    pub(crate) fn key(self) -> IntegerPlace {
        IntegerPlace::from_bits(self.0 >> KEY)
    }

    /// The slot of a word that tests.
    #[inline(always)]
    pub(crate) fn test_slot(self) -> usize {
        self.part(TEST_SLOT)
    }

    /// The decision of a word that tests.
    #[inline(always)]
    pub(crate) fn decision(self) -> u16 {
        self.0 as u16
    }

    /// The tables of a word that tests; none if the event is to be recorded.
    #[inline(always)]
    pub(crate) fn test_target(self) -> Option<CountTarget> {
        let channel = self.part(TEST_CHANNEL);
        (channel != 0).then_some(CountTarget {
            channel: channel as u8,
            is_plain: self.0 & TEST_PLAIN != 0,
        })
    }

    #[inline(always)]
    fn part(self, lowest: u32) -> usize {
        (self.0 >> lowest & 0xf) as usize
    }
}

impl FlaggedRoute {
    /// The slow path.
    pub(crate) const fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Makes the event take the slow path.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, action: FlaggedAction) {
        // Pairs with the load in `word`, and with the order of the loads in the sequence: the
        // channel was opened, and the decision was stored before.
        self.0.store(action.to_word(), Ordering::Release);
    }

    /// The word; none if the event takes the slow path.
    #[inline(always)]
    pub(crate) fn word(&self) -> Option<FlaggedWord> {
        // Pairs with the store in `set`.
        FlaggedWord::new(self.0.load(Ordering::Acquire))
    }

    /// Whether the word is what it was when this was loaded.
    #[inline(always)]
    pub(crate) fn is_still(&self, word: FlaggedWord) -> bool {
        self.0.load(Ordering::Relaxed) == word.0
    }

    /// For a sequence that reads the word once more.
    #[inline(always)]
    pub(crate) fn atomic(&self) -> &AtomicU32 {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: u8, signed: bool, big_endian: bool) -> Integer {
        Integer {
            len,
            signed,
            hex: false,
            big_endian,
        }
    }

    #[test]
    fn integers_are_where_the_place_says() {
        let bytes: [u8; 32] = std::array::from_fn(|n| 0x81 + 3 * n as u8);
        let words = bytes.as_chunks().0;
        let words: [u64; 4] = std::array::from_fn(|n| u64::from_le_bytes(words[n]));
        let words = FirstWords::of(&words);
        let mut places = 0;
        for len in [1, 2, 4, 8] {
            for at in 0..40 {
                for signed in [false, true] {
                    let place = IntegerPlace::new(of(len, signed, false), at);
                    let len = usize::from(len);
                    let is_within = at % 8 + len <= 8 && at < 32;
                    assert_eq!(place.is_some(), is_within, "{len} bytes at {at}");
                    let big_endian = IntegerPlace::new(of(len as u8, signed, true), at);
                    assert_eq!(big_endian, place.filter(|_| len == 1));
                    let Some(place) = place else { continue };
                    let is_negative = signed && bytes[at + len - 1] >= 0x80;
                    let mut expected = [if is_negative { 0xff } else { 0 }; 8];
                    expected[..len].copy_from_slice(&bytes[at..at + len]);
                    let value = u64::from_le_bytes(expected);
                    assert_eq!(place.get(words), Some((value, signed)), "{len} at {at}");
                    assert_eq!(IntegerPlace::from_bits(place.to_bits() | 1 << 10), place);
                    places += 1;
                }
            }
        }
        assert_eq!(places, 2 * 4 * (8 + 7 + 5 + 1));
        assert_eq!(IntegerPlace::NONE.get(words), None);
    }

    #[test]
    fn words_say_what_was_put_into_them() {
        let place = |len, signed, at| IntegerPlace::new(of(len, signed, false), at).unwrap();
        let places = [
            IntegerPlace::NONE,
            place(1, false, 0),
            place(1, true, 31),
            place(8, true, 24),
            place(2, false, 12),
        ];
        let targets = [(2, false), (15, true), (1, true), (8, false)]
            .map(|(channel, is_plain)| CountTarget { channel, is_plain });
        let pairs = || places.into_iter().flat_map(|v| places.map(|k| (v, k)));
        for slot in 0..16 {
            for target in targets {
                for (value, key) in pairs() {
                    let count = FlaggedAction::Count {
                        slot,
                        target,
                        value,
                        key,
                    };
                    let word = FlaggedWord(count.to_word());
                    assert!(word.get() != 0 && !word.is_test());
                    assert_eq!(
                        (word.slot(), word.channel()),
                        (slot.into(), target.channel.into())
                    );
                    assert_eq!(word.is_plain(), target.is_plain);
                    assert_eq!((word.value(), word.key()), (value, key));
                }
                for decision in [0, 1, 0x8000, u16::MAX] {
                    for target in [None, Some(target)] {
                        let test = FlaggedAction::Test {
                            slot,
                            decision,
                            target,
                        };
                        let word = FlaggedWord(test.to_word());
                        assert!(word.is_test());
                        assert_eq!((word.test_slot(), word.decision()), (slot.into(), decision));
                        assert_eq!(word.test_target(), target);
                    }
                }
            }
        }
        assert_eq!(FlaggedRoute::none().word(), None);
    }
}
