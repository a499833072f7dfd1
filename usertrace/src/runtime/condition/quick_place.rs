//! Where an event has an integer that it is counted by, if that is at a constant offset.

use usertrace_sys::description::{Integer, Scalar};

use super::place::{Part, Place, integer_code, integer_of};
use super::quick_test::integer;
use crate::event::IntegerPlace;

/// A bit of the word: there is an integer at the offset in the lowest bits.
const VALID: u32 = 1 << 31;
/// A bit of the word: the event has no such value.
const MISSING: u32 = 1 << 30;
/// The lowest bit of the integer's type.
const CODE: u32 = 24;

/// A place as a word; 0: only an evaluation finds the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuickPlace(u32);

impl QuickPlace {
    pub(super) fn new(place: Place) -> Self {
        Self(match place {
            Place::Missing => MISSING,
            Place::Field {
                part: Part::Number(Scalar::Integer(of)) | Part::Enumeration { of, .. },
                steps: 0,
                at,
            } if at < 1 << CODE => VALID | u32::from(integer_code(of)) << CODE | at,
            _ => 0,
        })
    }

    pub(super) fn to_word(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// The place, if it fits into a word of a call site.
    pub(super) fn to_short(self) -> Option<IntegerPlace> {
        match self.0 {
            MISSING => Some(IntegerPlace::NONE),
            word if word & VALID != 0 => IntegerPlace::new(self.of(), self.at()),
            _ => None,
        }
    }

    #[inline]
    fn of(self) -> Integer {
        integer_of((self.0 >> CODE) as u8 & 0xf)
    }

    #[inline]
    fn at(self) -> usize {
        (self.0 & ((1 << CODE) - 1)) as usize
    }

    /// The type and the bits of the value in a payload, if the event has one. None if only an
    /// evaluation finds it.
    #[inline]
    pub(super) fn value(self, payload: &[u64]) -> Option<Option<(Integer, u64)>> {
        if self.0 & VALID == 0 {
            return (self.0 == MISSING).then_some(None);
        }
        let of = self.of();
        Some(Some((of, integer(of, payload, self.at()))))
    }
}
