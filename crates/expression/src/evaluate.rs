//! Runs the program of an expression.

use core::cmp::Ordering;

use crate::answer::Answer;
use crate::compare::{Operand, OperandOf, compare};
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
        // Most events are decided by the first comparison. They need no stack.
        let [first, rest @ ..] = self.steps() else {
            return Answer::Unknown;
        };
        let (top, steps) = match small_comparison(*first, source) {
            Some(answer) if is_decisive(answer, rest) => return answer,
            Some(answer) => (Slot::Answer(answer), rest),
            None => (UNKNOWN, self.steps()),
        };
        if self.depth() <= SHALLOW {
            run(steps, top, text, source, &mut [UNKNOWN; SHALLOW])
        } else {
            run(steps, top, text, source, &mut [UNKNOWN; MAX_DEPTH])
        }
    }
}

/// Whether an answer is the final one, because the steps end or are all skipped.
#[inline]
fn is_decisive(answer: Answer, rest: &[Step]) -> bool {
    let skipped = match (rest.first(), answer) {
        (None, _) => 0,
        (Some(Step::SkipIfFalse(count)), Answer::False)
        | (Some(Step::SkipIfTrue(count)), Answer::True) => usize::from(*count) + 1,
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
    fn load<'a, S: Source>(self, text: &'a [u8], source: &mut S) -> OperandOf<'a, S> {
        match self {
            Self::Reference(reference) => source.value(reference.into()).into(),
            Self::Text(packed) => text
                .get(text_place(packed))
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
    OperandOf::<S>::from(source.value(reference.into())).number()
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
    mut steps: &[Step],
    top: Slot,
    text: &[u8],
    source: &mut S,
    below: &mut [Slot],
) -> Answer {
    let mut stack = Stack {
        top,
        below,
        depth: 0,
    };
    while let [step, rest @ ..] = steps {
        steps = rest;
        match *step {
            Step::Load(reference) => stack.push(Slot::Reference(reference)),
            Step::Less(..)
            | Step::LessEqual(..)
            | Step::Greater(..)
            | Step::GreaterEqual(..)
            | Step::Equal(..)
            | Step::NotEqual(..) => {
                let answer = small_comparison(*step, source).unwrap_or(Answer::Unknown);
                stack.push(Slot::Answer(answer));
            }
            Step::Small(number) => stack.push(Slot::Number(Number::Signed(small_integer(number)))),
            Step::Wide(wide, upper) => {
                let [Step::Data(middle), Step::Data(lower), rest @ ..] = steps else {
                    return Answer::Unknown;
                };
                steps = rest;
                stack.push(Slot::Number(wide_number(wide, upper, *middle, *lower)));
            }
            Step::Data(_) => return Answer::Unknown,
            Step::Text(packed) => stack.push(Slot::Text(packed)),
            Step::Compare(comparison) => {
                let (right, left) = (stack.pop(), stack.top);
                let (left, right) = (left.load(text, source), right.load(text, source));
                stack.top = Slot::Answer(compare(source, comparison, left, right));
            }
            Step::Bitwise(operator) => {
                let (right, left) = (stack.pop().number(source), stack.top.number(source));
                let both = left.zip(right);
                let bits = both.and_then(|(left, right)| left.bitwise(operator, right));
                stack.top = bits.into();
            }
            Step::Unary(operator) => stack.top = unary(operator, stack.top, source),
            Step::SkipIfFalse(count) => {
                steps = skip(&mut stack, source, Answer::False, steps, count)
            }
            Step::SkipIfTrue(count) => steps = skip(&mut stack, source, Answer::True, steps, count),
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

/// The steps to go on with at a skip.
#[inline]
fn skip<'p, S: Source>(
    stack: &mut Stack<'_>,
    source: &mut S,
    decisive: Answer,
    steps: &'p [Step],
    count: u8,
) -> &'p [Step] {
    let answer = stack.top.answer(source);
    stack.top = Slot::Answer(answer);
    match answer == decisive {
        true => steps.get(usize::from(count)..).unwrap_or_default(),
        false => steps,
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
