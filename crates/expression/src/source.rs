//! Where an evaluation takes the values of an event from.

/// Gives an evaluation the values of one event.
pub trait Source {
    /// A text of the event, such as a slice, or an address and a length.
    type Text: Copy;
    /// The labels of an enumeration's value.
    type Labels: Copy;

    /// The value of a reference: its position in
    /// [`Expression::references`](crate::Expression::references).
    fn value(&mut self, reference: usize) -> Value<Self::Text, Self::Labels>;

    /// A byte of a text. `None` at its end and after it.
    fn byte(&mut self, text: Self::Text, at: usize) -> Option<u8>;

    /// Takes the next of an enumeration's labels. `None` after the last one.
    fn next_label(&mut self, labels: &mut Self::Labels) -> Option<Self::Text>;
}

/// A value of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<Text, Labels> {
    /// The event has no such field or element, or it is a structure or an array.
    Missing,
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// True or false, which count as 1 and 0.
    Bool(bool),
    /// A float.
    Float(f64),
    /// A text.
    Text(Text),
    /// A value of an enumeration, which compares by its integer and by its labels.
    Enumeration(Integer, Labels),
}

/// The integer of an enumeration's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integer {
    /// A signed one.
    Signed(i64),
    /// An unsigned one.
    Unsigned(u64),
}
