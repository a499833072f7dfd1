//! Runs the program of an expression.

use crate::answer::Answer;
use crate::compare::{Operand, OperandOf, compare};
use crate::limits::MAX_DEPTH;
use crate::number::Number;
use crate::operator::Unary;
use crate::program::{Expression, Step, Wide};
use crate::source::Source;

/// The depth of most expressions. Their evaluation prepares a smaller stack.
const SHALLOW: usize = 3;

impl Expression {
    /// Whether an event matches. `text` is the one that was parsed.
    #[inline]
    pub fn evaluate<S: Source>(&self, text: &[u8], source: &mut S) -> Answer {
        if self.depth() <= SHALLOW {
            run(
                self.words(),
                text,
                source,
                &mut [const { Operand::Unknown }; SHALLOW],
            )
        } else {
            run(
                self.words(),
                text,
                source,
                &mut [const { Operand::Unknown }; MAX_DEPTH],
            )
        }
    }
}

/// The values that wait for their operators. The parser has checked that they fit. With another
/// program, values would be unknown.
struct Stack<'s, 'a, S: Source> {
    slots: &'s mut [OperandOf<'a, S>],
    depth: usize,
}

impl<'a, S: Source> Stack<'_, 'a, S> {
    #[inline]
    fn push(&mut self, value: impl Into<OperandOf<'a, S>>) {
        if let Some(slot) = self.slots.get_mut(self.depth) {
            *slot = value.into();
            self.depth += 1;
        }
    }

    #[inline]
    fn pop(&mut self) -> OperandOf<'a, S> {
        self.depth = self.depth.saturating_sub(1);
        self.slots
            .get(self.depth)
            .copied()
            .unwrap_or(Operand::Unknown)
    }
}

#[inline]
fn run<'a, S: Source>(
    mut words: &[u32],
    text: &'a [u8],
    source: &mut S,
    slots: &mut [OperandOf<'a, S>],
) -> Answer {
    let mut stack = Stack::<S> { slots, depth: 0 };
    while let [word, rest @ ..] = words {
        words = rest;
        let Some(step) = Step::decode(*word) else {
            return Answer::Unknown;
        };
        match step {
            Step::Load(reference) => stack.push(source.value(reference.into())),
            Step::CompareReference(comparison, reference, number) => {
                let value = OperandOf::<S>::from(source.value(reference.into()));
                let number = Number::Signed(number.into());
                stack.push(match value.number() {
                    Some(value) => Answer::from(value.compare(comparison, number)),
                    None => Answer::Unknown,
                });
            }
            Step::Small(number) => stack.push(Some(Number::Signed(number.into()))),
            Step::Wide(wide) => {
                let [low, high, rest @ ..] = words else {
                    return Answer::Unknown;
                };
                words = rest;
                stack.push(Some(constant(wide, *low, *high)));
            }
            Step::Text(start, length) => {
                let (start, length) = (usize::from(start), usize::from(length));
                stack.push(
                    text.get(start..start + length)
                        .map_or(Operand::Unknown, Operand::Literal),
                );
            }
            Step::Compare(comparison) => {
                let (right, left) = (stack.pop(), stack.pop());
                stack.push(compare(source, comparison, left, right));
            }
            Step::Bitwise(operator) => {
                let (right, left) = (stack.pop().number(), stack.pop().number());
                let both = left.zip(right);
                stack.push(both.and_then(|(left, right)| left.bitwise(operator, right)));
            }
            Step::Unary(operator) => {
                let value = stack.pop();
                stack.push(unary(operator, value));
            }
            Step::SkipIfFalse(count) => words = skip(&mut stack, Answer::False, words, count),
            Step::SkipIfTrue(count) => words = skip(&mut stack, Answer::True, words, count),
            Step::And => {
                let (right, left) = (stack.pop().answer(), stack.pop().answer());
                stack.push(left.and(right));
            }
            Step::Or => {
                let (right, left) = (stack.pop().answer(), stack.pop().answer());
                stack.push(left.or(right));
            }
        }
    }
    stack.pop().answer()
}

/// The words to go on with at a skip. Leaves the answer on the stack.
#[inline]
fn skip<'w, S: Source>(
    stack: &mut Stack<'_, '_, S>,
    decisive: Answer,
    words: &'w [u32],
    count: u8,
) -> &'w [u32] {
    let answer = stack.pop().answer();
    stack.push(answer);
    if answer == decisive {
        words.get(usize::from(count)..).unwrap_or_default()
    } else {
        words
    }
}

#[inline]
fn constant(wide: Wide, low: u32, high: u32) -> Number {
    let bits = u64::from(high) << 32 | u64::from(low);
    match wide {
        Wide::Signed => Number::Signed(bits.cast_signed()),
        Wide::Unsigned => Number::Unsigned(bits),
        Wide::Float => Number::Float(f64::from_bits(bits)),
    }
}

#[inline]
fn unary<'a, Text, Labels>(
    operator: Unary,
    value: Operand<'a, Text, Labels>,
) -> Operand<'a, Text, Labels> {
    match operator {
        Unary::Plus => value.number().into(),
        Unary::Minus => value.number().and_then(Number::negated).into(),
        Unary::BitNot => value
            .number()
            .and_then(Number::bits)
            .map(|bits| Number::Bits(!bits))
            .into(),
        Unary::Not => value.answer().not().into(),
    }
}
