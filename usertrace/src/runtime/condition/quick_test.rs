//! The comparison that rejects most events, without an evaluation.

use usertrace_expression::{FirstTest, Integer as Constant};
use usertrace_sys::description::{Integer, Scalar};

use super::place::{Part, Place, integer_code, integer_of};
use super::table::Bank;
use crate::event::{FirstWords, IntegerPlace};

/// A bit of the first word: there is a test.
const VALID: u32 = 1 << 31;

/// A bit of the first word: an event that passes the test passes all conditions.
const WHOLE: u32 = 1 << 30;

/// The lowest bits of the orders, and of the integer's type. An [`IntegerPlace`] is below.
const ORDERS: u32 = 24;
const CODE: u32 = 16;

/// Words of a test.
pub(super) const QUICK_TEST_WORDS: usize = 4;

/// A comparison of an integer at a constant offset, without which the conditions refuse an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuickTest {
    of: Integer,
    at: u32,
    /// A number that the integer can have, sign-extended.
    constant: u64,
    orders: u8,
    is_whole: bool,
}

/// The answer of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum QuickAnswer {
    /// The conditions refuse the event.
    Refused,
    /// They let it through.
    Accepted,
    /// Only an evaluation finds the answer.
    Unknown,
}

impl QuickTest {
    /// The test of a value at this place; none if that is no such integer, or if the constant is
    /// less than any, or greater.
    pub(super) fn new(test: FirstTest, place: Place) -> Option<Self> {
        let Place::Field {
            part: Part::Number(Scalar::Integer(of)),
            steps: 0,
            at,
        } = place
        else {
            return None;
        };
        let constant = match (of.signed, test.constant) {
            (true, Constant::Signed(constant)) => constant.cast_unsigned(),
            (false, Constant::Unsigned(constant)) => constant,
            (true, Constant::Unsigned(constant)) => i64::try_from(constant).ok()?.cast_unsigned(),
            (false, Constant::Signed(constant)) => u64::try_from(constant).ok()?,
        };
        Some(Self {
            of,
            at,
            constant,
            orders: test.orders,
            is_whole: test.is_whole,
        })
    }

    /// A test that stands beside other conditions.
    pub(super) fn as_part(self) -> Self {
        Self {
            is_whole: false,
            ..self
        }
    }

    pub(super) fn to_words(self) -> [u32; QUICK_TEST_WORDS] {
        let code = u32::from(integer_code(self.of)) << CODE;
        let short = IntegerPlace::new(self.of, self.at as usize);
        let short = short.unwrap_or(IntegerPlace::NONE).to_bits();
        let whole = if self.is_whole { WHOLE } else { 0 };
        [
            VALID | whole | u32::from(self.orders) << ORDERS | code | short,
            self.at,
            self.constant as u32,
            (self.constant >> 32) as u32,
        ]
    }

    /// Whether there is a test at these words.
    pub(super) fn is_at(bank: &Bank, at: usize) -> bool {
        bank.word(at) & VALID != 0
    }

    /// The test at these words, if there is one.
    #[inline(always)]
    pub(super) fn load(bank: &Bank, at: usize) -> LoadedTest {
        LoadedTest(bank.words(at))
    }
}

/// The words of a test, or zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadedTest([u32; QUICK_TEST_WORDS]);

impl LoadedTest {
    /// The answer for a payload. Unknown if there is no test.
    ///
    /// `first` are the first words of the payload, which has no others if `all` is none.
    #[inline(always)]
    pub(super) fn answer(self, first: FirstWords, all: Option<&[u64]>) -> QuickAnswer {
        let [word, at, low, high] = self.0;
        if word & VALID == 0 {
            return QuickAnswer::Unknown;
        }
        let (bits, signed) = match IntegerPlace::from_bits(word).get(first) {
            Some(integer) => integer,
            None => {
                let of = integer_of((word >> CODE) as u8);
                (integer_anywhere(of, first, all, at as usize), of.signed)
            }
        };
        let constant = u64::from(low) | u64::from(high) << 32;
        // With their signs flipped, signed numbers compare as unsigned ones.
        let flip = u64::from(signed) << 63;
        let order = (bits ^ flip).cmp(&(constant ^ flip));
        match FirstTest::bit(order) & (word >> ORDERS) as u8 & 7 {
            0 => QuickAnswer::Refused,
            _ if word & WHOLE != 0 => QuickAnswer::Accepted,
            _ => QuickAnswer::Unknown,
        }
    }
}

/// An integer that no [`IntegerPlace`] leads to.
#[cold]
#[inline(never)]
fn integer_anywhere(of: Integer, first: FirstWords, all: Option<&[u64]>, at: usize) -> u64 {
    match all {
        Some(payload) => integer(of, payload, at),
        None => integer(of, &first.to_array(), at),
    }
}

/// An integer at an offset, sign-extended. Missing bytes are 0.
#[inline]
pub(super) fn integer(of: Integer, payload: &[u64], at: usize) -> u64 {
    let word = |at: usize| payload.get(at).copied().unwrap_or(0);
    let (index, shift) = (at / 8, at % 8 * 8);
    let mut bits = word(index) >> shift;
    if shift != 0 {
        bits |= word(index + 1) << (64 - shift);
    }
    let unused = 64 - 8 * u32::from(of.len);
    if of.big_endian {
        bits = bits.swap_bytes() >> unused;
    }
    match of.signed {
        true => ((bits << unused).cast_signed() >> unused).cast_unsigned(),
        false => bits << unused >> unused,
    }
}
