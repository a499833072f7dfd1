//! The comparison that decides about most events.

use core::cmp::Ordering;

use crate::program::{Expression, Step};

/// A comparison of a number with a constant, without which an expression is not true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTest {
    /// The position of what is compared, in [`Expression::references`].
    pub reference: u8,
    /// The constant.
    pub constant: i16,
    /// The orders of the number to the constant for which the comparison is true: bits 0 to 2 for
    /// less, equal, and greater.
    pub orders: u8,
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
        let [first, rest @ ..] = self.steps() else {
            return None;
        };
        let (orders, reference, constant) = match *first {
            Step::Less(reference, number) => (1, reference, number),
            Step::LessEqual(reference, number) => (3, reference, number),
            Step::Greater(reference, number) => (4, reference, number),
            Step::GreaterEqual(reference, number) => (6, reference, number),
            Step::Equal(reference, number) => (2, reference, number),
            Step::NotEqual(reference, number) => (5, reference, number),
            _ => return None,
        };
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
        })
    }
}
