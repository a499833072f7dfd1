//! Runs the program of an expression.

use core::cmp::Ordering;
use core::ops::Range;

use crate::answer::Answer;
use crate::compare::{Operand, OperandOf, compare};
use crate::glob::Pattern;
use crate::limits::MAX_DEPTH;
use crate::number::Number;
use crate::operator::Unary;
use crate::program::{Expression, Step, small_integer, text_place, wide_number};
use crate::source::Source;

/// The depth of most expressions. Their evaluation prepares a smaller stack.
const SHALLOW: usize = 3;

impl Expression {
    /// Whether an event matches. `text` is the parsed text.
    #[inline]
    pub fn evaluate<S: Source>(&self, text: &[u8], source: &mut S) -> Answer {
        evaluate(self.steps().iter().copied(), self.depth(), text, source)
    }
}

/// The text that constants lie in.
pub(crate) trait Constants {
    type Literal: Pattern;

    /// The text between the quotes of a constant.
    fn literal(&self, place: Range<usize>) -> Option<Self::Literal>;
}

impl<'a> Constants for &'a [u8] {
    type Literal = &'a [u8];

    #[inline]
    fn literal(&self, place: Range<usize>) -> Option<&'a [u8]> {
        self.get(place)
    }
}

/// The steps of a program. A clone continues where its original is.
pub(crate) trait Steps: ExactSizeIterator<Item = Step> + Clone {}

impl<T: ExactSizeIterator<Item = Step> + Clone> Steps for T {}

/// Runs a program. `depth`: how many values wait at most.
#[inline]
pub(crate) fn evaluate<S: Source>(
    steps: impl Steps,
    depth: usize,
    text: impl Constants,
    source: &mut S,
) -> Answer {
    // Most events are decided by the first comparison. They need no stack.
    let mut rest = steps.clone();
    let Some(first) = rest.next() else {
        return Answer::Unknown;
    };
    match small_comparison(first, source) {
        Some(answer) if is_decisive(answer, &rest) => answer,
        Some(answer) => run_at(rest, Slot::Answer(answer), depth, text, source),
        None => run_at(steps, UNKNOWN, depth, text, source),
    }
}

/// Runs steps with a stack of the right size.
#[inline]
fn run_at<S: Source>(
    steps: impl Steps,
    top: Slot,
    depth: usize,
    text: impl Constants,
    source: &mut S,
) -> Answer {
    if depth <= SHALLOW {
        run(steps, top, text, source, &mut [UNKNOWN; SHALLOW])
    } else {
        run(steps, top, text, source, &mut [UNKNOWN; MAX_DEPTH])
    }
}

/// Whether an answer is the final one, because the steps end or are all skipped.
#[inline]
fn is_decisive(answer: Answer, rest: &impl Steps) -> bool {
    let skipped = match (rest.clone().next(), answer) {
        (None, _) => 0,
        (Some(Step::SkipIfFalse(count)), Answer::False)
        | (Some(Step::SkipIfTrue(count)), Answer::True) => usize::from(count) + 1,
        _ => return false,
    };
    skipped == rest.len()
}

/// A value that waits for its operator. Texts and enumerations stay where they are: their only
/// operators are comparisons, which load them.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// True and false are the numbers 1 and 0, too.
    Answer(Answer),
    Number(Number),
    Reference(u8),
    /// A constant text, see [`Step::Text`].
    Text([u8; 3]),
}

const UNKNOWN: Slot = Slot::Answer(Answer::Unknown);

impl From<Option<Number>> for Slot {
    #[inline]
    fn from(number: Option<Number>) -> Self {
        number.map_or(UNKNOWN, Self::Number)
    }
}

impl Slot {
    #[inline]
    fn load<C: Constants, S: Source>(self, text: &C, source: &mut S) -> OperandOf<C::Literal, S> {
        match self {
            Self::Reference(reference) => source.value(reference.into()).into(),
            Self::Text(packed) => text
                .literal(text_place(packed))
                .map_or(Operand::Unknown, Operand::Literal),
            Self::Number(_) | Self::Answer(_) => self
                .number(source)
                .map_or(Operand::Unknown, Operand::Number),
        }
    }

    #[inline]
    fn number<S: Source>(self, source: &mut S) -> Option<Number> {
        match self {
            Self::Number(number) => Some(number),
            Self::Reference(reference) => number_of(source, reference),
            Self::Answer(Answer::False) => Some(Number::Signed(0)),
            Self::Answer(Answer::True) => Some(Number::Signed(1)),
            Self::Answer(Answer::Unknown) | Self::Text(_) => None,
        }
    }

    /// The value as a condition: numbers other than 0 are true.
    #[inline]
    fn answer<S: Source>(self, source: &mut S) -> Answer {
        match self {
            Self::Answer(answer) => answer,
            other => other
                .number(source)
                .map_or(Answer::Unknown, |number| number.is_nonzero().into()),
        }
    }
}

#[inline]
fn number_of<S: Source>(source: &mut S, reference: u8) -> Option<Number> {
    OperandOf::<(), S>::from(source.value(reference.into())).number()
}

/// The values that wait for their operators, with the top one apart, as most steps use no other.
/// The parser has checked that they fit. With another program, values would be unknown.
struct Stack<'s> {
    top: Slot,
    below: &'s mut [Slot],
    depth: usize,
}

impl Stack<'_> {
    #[inline]
    fn push(&mut self, value: Slot) {
        if let Some(slot) = self.below.get_mut(self.depth) {
            *slot = self.top;
            self.depth += 1;
        }
        self.top = value;
    }

    #[inline]
    fn pop(&mut self) -> Slot {
        self.depth = self.depth.saturating_sub(1);
        let below = self.below.get(self.depth).copied();
        core::mem::replace(&mut self.top, below.unwrap_or(UNKNOWN))
    }
}

fn run<S: Source>(
    mut steps: impl Steps,
    top: Slot,
    text: impl Constants,
    source: &mut S,
    below: &mut [Slot],
) -> Answer {
    let mut stack = Stack {
        top,
        below,
        depth: 0,
    };
    while let Some(step) = steps.next() {
        match step {
            Step::Load(reference) => stack.push(Slot::Reference(reference)),
            Step::Less(..)
            | Step::LessEqual(..)
            | Step::Greater(..)
            | Step::GreaterEqual(..)
            | Step::Equal(..)
            | Step::NotEqual(..) => {
                let answer = small_comparison(step, source).unwrap_or(Answer::Unknown);
                stack.push(Slot::Answer(answer));
            }
            Step::Small(number) => stack.push(Slot::Number(Number::Signed(small_integer(number)))),
            Step::Wide(wide, upper) => {
                let (Some(Step::Data(middle)), Some(Step::Data(lower))) =
                    (steps.next(), steps.next())
                else {
                    return Answer::Unknown;
                };
                stack.push(Slot::Number(wide_number(wide, upper, middle, lower)));
            }
            Step::Data(_) => return Answer::Unknown,
            Step::Text(packed) => stack.push(Slot::Text(packed)),
            Step::Compare(comparison) => {
                let (right, left) = (stack.pop(), stack.top);
                let (left, right) = (left.load(&text, source), right.load(&text, source));
                stack.top = Slot::Answer(compare(source, comparison, left, right));
            }
            Step::Bitwise(operator) => {
                let (right, left) = (stack.pop().number(source), stack.top.number(source));
                let both = left.zip(right);
                let bits = both.and_then(|(left, right)| left.bitwise(operator, right));
                stack.top = bits.into();
            }
            Step::Unary(operator) => stack.top = unary(operator, stack.top, source),
            Step::SkipIfFalse(count) => skip(&mut stack, source, Answer::False, &mut steps, count),
            Step::SkipIfTrue(count) => skip(&mut stack, source, Answer::True, &mut steps, count),
            Step::And => {
                let (right, left) = (stack.pop().answer(source), stack.top.answer(source));
                stack.top = Slot::Answer(left.and(right));
            }
            Step::Or => {
                let (right, left) = (stack.pop().answer(source), stack.top.answer(source));
                stack.top = Slot::Answer(left.or(right));
            }
        }
    }
    stack.top.answer(source)
}

/// The answer of a step that compares a reference with a small number. `None` for other steps.
#[inline]
fn small_comparison<S: Source>(step: Step, source: &mut S) -> Option<Answer> {
    let (reference, number, is_true): (_, _, fn(Ordering) -> bool) = match step {
        Step::Less(reference, number) => (reference, number, Ordering::is_lt),
        Step::LessEqual(reference, number) => (reference, number, Ordering::is_le),
        Step::Greater(reference, number) => (reference, number, Ordering::is_gt),
        Step::GreaterEqual(reference, number) => (reference, number, Ordering::is_ge),
        Step::Equal(reference, number) => (reference, number, Ordering::is_eq),
        Step::NotEqual(reference, number) => (reference, number, Ordering::is_ne),
        _ => return None,
    };
    let value = number_of(source, reference);
    Some(value.map_or(Answer::Unknown, |value| {
        let order = value.order_of_small(number);
        // A NaN is not equal to any number, and has no order.
        order
            .map_or(matches!(step, Step::NotEqual(..)), is_true)
            .into()
    }))
}

/// Skips steps if the top value is decisive.
#[inline]
fn skip<S: Source>(
    stack: &mut Stack<'_>,
    source: &mut S,
    decisive: Answer,
    steps: &mut impl Steps,
    count: u8,
) {
    let answer = stack.top.answer(source);
    stack.top = Slot::Answer(answer);
    if answer == decisive
        && let Some(last) = count.checked_sub(1)
    {
        steps.nth(last.into());
    }
}

#[inline]
fn unary<S: Source>(operator: Unary, value: Slot, source: &mut S) -> Slot {
    match operator {
        Unary::Not => Slot::Answer(value.answer(source).not()),
        Unary::Plus => value.number(source).into(),
        Unary::Minus => value.number(source).and_then(Number::negated).into(),
        Unary::BitNot => {
            let bits = value.number(source).and_then(Number::bits);
            bits.map(|bits| Number::Bits(!bits)).into()
        }
    }
}
