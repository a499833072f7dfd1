//! Numbers of an evaluation: exact integers of 64 bits, and floats.

use core::cmp::Ordering;

use crate::operator::{Bitwise, Comparison};
use crate::source::Integer;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Signed(i64),
    Unsigned(u64),
    /// The result of a bit operator. Its sign is decided by what it is compared with.
    Bits(u64),
    Float(f64),
}

impl From<Integer> for Number {
    #[inline]
    fn from(integer: Integer) -> Self {
        match integer {
            Integer::Signed(number) => Self::Signed(number),
            Integer::Unsigned(number) => Self::Unsigned(number),
        }
    }
}

impl Number {
    #[inline]
    pub(crate) fn is_nonzero(self) -> bool {
        match self {
            Self::Signed(number) => number != 0,
            Self::Unsigned(number) | Self::Bits(number) => number != 0,
            Self::Float(number) => number != 0.0,
        }
    }

    /// `None` if the result has no room in 64 bits.
    #[inline]
    pub(crate) fn negated(self) -> Option<Self> {
        let signed = |number: i64| match number.checked_neg() {
            Some(number) => Self::Signed(number),
            None => Self::Unsigned(number.unsigned_abs()),
        };
        Some(match self {
            Self::Signed(number) => signed(number),
            Self::Unsigned(number) => Self::Signed(0_i64.checked_sub_unsigned(number)?),
            Self::Bits(number) => signed(number.cast_signed()),
            Self::Float(number) => Self::Float(-number),
        })
    }

    #[inline]
    pub(crate) fn bits(self) -> Option<u64> {
        match self {
            Self::Signed(number) => Some(number.cast_unsigned()),
            Self::Unsigned(number) | Self::Bits(number) => Some(number),
            Self::Float(_) => None,
        }
    }

    /// `None` with floats and for shifts that are negative or of 64 and more.
    #[inline]
    pub(crate) fn bitwise(self, operator: Bitwise, other: Self) -> Option<Self> {
        let (left, right) = (self.bits()?, other.bits()?);
        let shift = || u32::try_from(right).ok();
        Some(Self::Bits(match operator {
            Bitwise::ShiftLeft => left.checked_shl(shift()?)?,
            Bitwise::ShiftRight => left.checked_shr(shift()?)?,
            Bitwise::And => left & right,
            Bitwise::Xor => left ^ right,
            Bitwise::Or => left | right,
        }))
    }

    #[inline]
    fn float(self) -> f64 {
        match self {
            Self::Signed(number) => number as f64,
            Self::Unsigned(number) => number as f64,
            Self::Bits(number) => number.cast_signed() as f64,
            Self::Float(number) => number,
        }
    }

    /// `None` with a NaN.
    #[inline]
    fn order(self, other: Self) -> Option<Ordering> {
        Some(match (self, other) {
            (Self::Signed(left), Self::Signed(right)) => left.cmp(&right),
            (Self::Unsigned(left) | Self::Bits(left), Self::Unsigned(right))
            | (Self::Unsigned(left), Self::Bits(right)) => left.cmp(&right),
            (Self::Bits(left), Self::Bits(right)) => left.cast_signed().cmp(&right.cast_signed()),
            (Self::Bits(left), Self::Signed(right)) => left.cast_signed().cmp(&right),
            (Self::Signed(left), Self::Bits(right)) => left.cmp(&right.cast_signed()),
            (Self::Signed(left), Self::Unsigned(right)) => i128::from(left).cmp(&right.into()),
            (Self::Unsigned(left), Self::Signed(right)) => i128::from(left).cmp(&right.into()),
            (left, right) => return left.float().partial_cmp(&right.float()),
        })
    }

    /// The order of a number and a small one. `None` with a NaN.
    #[inline]
    pub(crate) fn order_of_small(self, other: i16) -> Option<Ordering> {
        let small = i64::from(other);
        Some(match self {
            Self::Signed(number) => number.cmp(&small),
            Self::Unsigned(number) => match i64::try_from(number) {
                Ok(number) => number.cmp(&small),
                Err(_) => Ordering::Greater,
            },
            Self::Bits(number) => number.cast_signed().cmp(&small),
            Self::Float(number) => return number.partial_cmp(&other.into()),
        })
    }

    #[inline]
    pub(crate) fn compare(self, comparison: Comparison, other: Self) -> bool {
        let order = self.order(other);
        match comparison {
            Comparison::Less => order.is_some_and(Ordering::is_lt),
            Comparison::LessEqual => order.is_some_and(Ordering::is_le),
            Comparison::Greater => order.is_some_and(Ordering::is_gt),
            Comparison::GreaterEqual => order.is_some_and(Ordering::is_ge),
            Comparison::Equal => order.is_some_and(Ordering::is_eq),
            Comparison::NotEqual => !order.is_some_and(Ordering::is_eq),
        }
    }
}
