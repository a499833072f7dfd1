//! The comparison that rejects most events, without an evaluation.

use usertrace_expression::{FirstTest, Integer as Constant};
use usertrace_sys::description::{Integer, Scalar};

use super::place::{Part, Place, integer_code, integer_of};
use super::table::Bank;

/// A bit of the first word: there is a test.
const VALID: u32 = 1 << 31;

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
        })
    }

    pub(super) fn to_words(self) -> [u32; QUICK_TEST_WORDS] {
        let code = u32::from(integer_code(self.of)) << 16;
        [
            VALID | u32::from(self.orders) << 24 | code,
            self.at,
            self.constant as u32,
            (self.constant >> 32) as u32,
        ]
    }

    /// Whether the test at these words fails for a payload. False if there is none.
    #[inline]
    pub(super) fn fails(bank: &Bank, at: usize, payload: &[u64]) -> bool {
        let word = bank.word(at);
        if word & VALID == 0 {
            return false;
        }
        let of = integer_of((word >> 16) as u8);
        let bits = integer(of, payload, bank.word(at + 1) as usize);
        let constant = u64::from(bank.word(at + 2)) | u64::from(bank.word(at + 3)) << 32;
        let order = match of.signed {
            true => bits.cast_signed().cmp(&constant.cast_signed()),
            false => bits.cmp(&constant),
        };
        FirstTest::bit(order) & (word >> 24) as u8 & 7 == 0
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
