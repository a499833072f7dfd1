//! Values that lie in slices.

use crate::source::{Integer, Source, Value};

/// A value of an event in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// The event has no such field.
    Missing,
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// True or false.
    Bool(bool),
    /// A float.
    Float(f64),
    /// A text.
    Text(&'a [u8]),
    /// A value of an enumeration with its labels.
    Enumeration(Integer, &'a [&'a [u8]]),
}

/// A [`Source`] of the values in a slice, which has them in the order of
/// [`Expression::references`](crate::Expression::references). Values beyond its end are missing.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a>(pub &'a [Field<'a>]);

impl<'a> Source for Slices<'a> {
    type Text = &'a [u8];
    type Labels = &'a [&'a [u8]];

    #[inline]
    fn value(&mut self, reference: usize) -> Value<Self::Text, Self::Labels> {
        match self.0.get(reference) {
            None | Some(Field::Missing) => Value::Missing,
            Some(Field::Signed(number)) => Value::Signed(*number),
            Some(Field::Unsigned(number)) => Value::Unsigned(*number),
            Some(Field::Bool(value)) => Value::Bool(*value),
            Some(Field::Float(number)) => Value::Float(*number),
            Some(Field::Text(text)) => Value::Text(text),
            Some(Field::Enumeration(number, labels)) => Value::Enumeration(*number, labels),
        }
    }

    #[inline]
    fn byte(&mut self, text: &'a [u8], at: usize) -> Option<u8> {
        text.get(at).copied()
    }

    #[inline]
    fn next_label(&mut self, labels: &mut &'a [&'a [u8]]) -> Option<&'a [u8]> {
        let (first, rest) = labels.split_first()?;
        *labels = rest;
        Some(first)
    }
}
