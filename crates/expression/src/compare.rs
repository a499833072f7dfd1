//! Compares two values of an evaluation.

use crate::answer::Answer;
use crate::glob::{self, Pattern};
use crate::number::Number;
use crate::operator::Comparison;
use crate::source::{Source, Value};

/// A value on the stack of an evaluation. `literal` is a constant text: what is between its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand<Literal, Text, Labels> {
    Unknown,
    Number(Number),
    Literal(Literal),
    Text(Text),
    Enumeration(Number, Labels),
}

impl<Literal, Text, Labels> Operand<Literal, Text, Labels> {
    /// The value as a number: enumerations have one.
    #[inline]
    pub(crate) fn number(self) -> Option<Number> {
        match self {
            Self::Number(number) | Self::Enumeration(number, _) => Some(number),
            Self::Unknown | Self::Literal(_) | Self::Text(_) => None,
        }
    }
}

impl<Literal, Text, Labels> From<Value<Text, Labels>> for Operand<Literal, Text, Labels> {
    #[inline]
    fn from(value: Value<Text, Labels>) -> Self {
        match value {
            Value::Missing => Self::Unknown,
            Value::Signed(number) => Self::Number(Number::Signed(number)),
            Value::Unsigned(number) => Self::Number(Number::Unsigned(number)),
            Value::Bool(value) => Self::Number(Number::Signed(value.into())),
            Value::Float(number) => Self::Number(Number::Float(number)),
            Value::Text(text) => Self::Text(text),
            Value::Enumeration(number, labels) => Self::Enumeration(number.into(), labels),
        }
    }
}

pub(crate) type OperandOf<L, S> = Operand<L, <S as Source>::Text, <S as Source>::Labels>;

#[inline]
pub(crate) fn compare<L: Pattern, S: Source>(
    source: &mut S,
    comparison: Comparison,
    left: OperandOf<L, S>,
    right: OperandOf<L, S>,
) -> Answer {
    if let (Some(left), Some(right)) = (left.number(), right.number()) {
        return left.compare(comparison, right).into();
    }
    let equal = match comparison {
        Comparison::Equal | Comparison::NotEqual => texts_equal(source, left, right),
        _ => Answer::Unknown,
    };
    if comparison == Comparison::NotEqual {
        equal.not()
    } else {
        equal
    }
}

fn texts_equal<L: Pattern, S: Source>(
    source: &mut S,
    left: OperandOf<L, S>,
    right: OperandOf<L, S>,
) -> Answer {
    match (left, right) {
        (Operand::Text(text), Operand::Literal(pattern))
        | (Operand::Literal(pattern), Operand::Text(text)) => matches(source, pattern, text).into(),
        (Operand::Text(left), Operand::Text(right)) => are_equal(source, left, right).into(),
        (Operand::Enumeration(_, labels), Operand::Literal(pattern))
        | (Operand::Literal(pattern), Operand::Enumeration(_, labels)) => {
            any_label(source, labels, |source, label| {
                matches(source, pattern, label)
            })
        }
        (Operand::Enumeration(_, labels), Operand::Text(text))
        | (Operand::Text(text), Operand::Enumeration(_, labels)) => {
            any_label(source, labels, |source, label| {
                are_equal(source, label, text)
            })
        }
        _ => Answer::Unknown,
    }
}

fn any_label<S: Source>(
    source: &mut S,
    mut labels: S::Labels,
    matches: impl Fn(&mut S, S::Text) -> bool,
) -> Answer {
    while let Some(label) = source.next_label(&mut labels) {
        if matches(source, label) {
            return Answer::True;
        }
    }
    Answer::False
}

fn matches<S: Source>(source: &mut S, pattern: impl Pattern, text: S::Text) -> bool {
    glob::matches(pattern, |at| source.byte(text, at))
}

fn are_equal<S: Source>(source: &mut S, left: S::Text, right: S::Text) -> bool {
    let mut at = 0;
    loop {
        match (source.byte(left, at), source.byte(right, at)) {
            (None, None) => return true,
            (left, right) if left != right => return false,
            _ => at += 1,
        }
    }
}
