//! The comparison that decides about most events.

use core::cmp::Ordering;

use crate::number::Number;
use crate::operator::Comparison;
use crate::program::{Expression, Step, small_integer, wide_number};
use crate::source::Integer;

/// A comparison of a number with an integer constant, without which an expression is not true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTest {
    /// The position of what is compared, in [`Expression::references`].
    pub reference: u8,
    /// The constant.
    pub constant: Integer,
    /// The orders of the number to the constant for which the comparison is true: bits 0 to 2 for
    /// less, equal, and greater.
    pub orders: u8,
    /// The expression has no other part: it is true if the comparison is.
    pub is_whole: bool,
}

impl FirstTest {
    /// The bit of an order.
    #[inline]
    #[must_use]
    pub fn bit(order: Ordering) -> u8 {
        match order {
            Ordering::Less => 1,
            Ordering::Equal => 2,
            Ordering::Greater => 4,
        }
    }
}

impl Expression {
    /// The comparison that the expression begins with, if the expression is not true without it.
    #[must_use]
    pub fn first_test(&self) -> Option<FirstTest> {
        let (reference, comparison, constant, rest) = comparison(self.steps())?;
        let orders = match comparison {
            Comparison::Less => 1,
            Comparison::LessEqual => 3,
            Comparison::Greater => 4,
            Comparison::GreaterEqual => 6,
            Comparison::Equal => 2,
            Comparison::NotEqual => 5,
        };
        let is_whole = rest.is_empty();
        let is_needed = match rest {
            [] => true,
            // All other steps are skipped if it is false.
            [Step::SkipIfFalse(count), rest @ ..] => usize::from(*count) == rest.len(),
            _ => false,
        };
        is_needed.then_some(FirstTest {
            reference,
            constant,
            orders,
            is_whole,
        })
    }
}

/// The comparison of a reference with an integer that steps begin with, and the steps after it.
fn comparison(steps: &[Step]) -> Option<(u8, Comparison, Integer, &[Step])> {
    let small = |number: i16| Integer::Signed(number.into());
    let [first, rest @ ..] = steps else {
        return None;
    };
    let reference = match *first {
        Step::Less(of, number) => return Some((of, Comparison::Less, small(number), rest)),
        Step::LessEqual(of, number) => {
            return Some((of, Comparison::LessEqual, small(number), rest));
        }
        Step::Greater(of, number) => return Some((of, Comparison::Greater, small(number), rest)),
        Step::GreaterEqual(of, number) => {
            return Some((of, Comparison::GreaterEqual, small(number), rest));
        }
        Step::Equal(of, number) => return Some((of, Comparison::Equal, small(number), rest)),
        Step::NotEqual(of, number) => return Some((of, Comparison::NotEqual, small(number), rest)),
        Step::Load(of) => of,
        _ => return None,
    };
    let (constant, rest) = match *rest {
        [Step::Small(number), ref rest @ ..] => (Number::Signed(small_integer(number)), rest),
        [
            Step::Wide(wide, upper),
            Step::Data(middle),
            Step::Data(lower),
            ref rest @ ..,
        ] => (wide_number(wide, upper, middle, lower), rest),
        _ => return None,
    };
    let constant = match constant {
        Number::Signed(number) => Integer::Signed(number),
        Number::Unsigned(number) => Integer::Unsigned(number),
        Number::Bits(_) | Number::Float(_) => return None,
    };
    match *rest {
        [Step::Compare(comparison), ref rest @ ..] => Some((reference, comparison, constant, rest)),
        _ => None,
    }
}
