//! Fields of events, and their types.

use std::fmt;

use usertrace_sys::description::{self, LabelWord, Type};
pub use usertrace_sys::description::{Element, FieldError, Integer, Scalar};

use super::percent;

/// A label of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Any text.
    pub name: String,
    /// First value of its range.
    pub first: i128,
    /// Last value of its range.
    pub last: i128,
}

/// Type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// A number.
    Scalar(Scalar),
    /// A string with a NUL at its end.
    Str,
    /// An integer with labels, of which there is at least one. Ranges may overlap.
    Enum(Integer, Vec<Label>),
    /// An array with a fixed number of elements: at least one.
    Array(Element, u16),
    /// A number of elements as a `u32` in native byte order, and the elements.
    Sequence(Element),
}

/// Length of a sequence's count in bytes.
const COUNT_LEN: usize = size_of::<u32>();

impl Label {
    fn of(label: LabelWord<'_>) -> Option<Self> {
        Some(Self {
            name: percent::decode(label.name)?,
            first: label.first,
            last: label.last,
        })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", percent::encode(&self.name), self.first)?;
        if self.first == self.last {
            return Ok(());
        }
        write!(f, "..{}", self.last)
    }
}

impl FieldType {
    pub(super) fn of(kind: Type<'_>) -> Result<Self, FieldError> {
        Ok(match kind {
            Type::Scalar(scalar) => Self::Scalar(scalar),
            Type::Str => Self::Str,
            Type::Array(element, len) => Self::Array(element, len),
            Type::Sequence(element) => Self::Sequence(element),
            Type::Enum(of, text) => {
                let labels = description::labels(text, of);
                let labels = labels.map(|label| Label::of(label?).ok_or(FieldError::Label));
                Self::Enum(of, labels.collect::<Result<_, _>>()?)
            }
        })
    }

    /// Length of a value in bytes, if it is the same for all values.
    pub fn fixed_len(&self) -> Option<usize> {
        match self {
            FieldType::Scalar(scalar) => Some(scalar.size()),
            FieldType::Enum(integer, _) => Some(usize::from(integer.len)),
            FieldType::Array(element, len) => Some(element.size() * usize::from(*len)),
            FieldType::Str | FieldType::Sequence(_) => None,
        }
    }

    /// Length of a value at the start of `bytes`. It may exceed `bytes`. None for a string without
    /// its NUL, or a sequence without its count.
    pub fn len(&self, bytes: &[u8]) -> Option<usize> {
        match self {
            FieldType::Str => bytes.iter().position(|&b| b == 0).map(|nul| nul + 1),
            FieldType::Sequence(element) => {
                let count = u32::from_ne_bytes(*bytes.first_chunk()?);
                let len = usize::try_from(count).ok()?.checked_mul(element.size())?;
                len.checked_add(COUNT_LEN)
            }
            _ => self.fixed_len(),
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldType::Scalar(scalar) => scalar.fmt(f),
            FieldType::Str => f.write_str("str"),
            FieldType::Array(element, len) => write!(f, "{element}[{len}]"),
            FieldType::Sequence(element) => write!(f, "{element}[]"),
            FieldType::Enum(integer, labels) => {
                integer.fmt(f)?;
                let labels: Vec<_> = labels.iter().map(Label::to_string).collect();
                write!(f, "{{{}}}", labels.join(","))
            }
        }
    }
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name: not empty, without white space and control characters.
    pub name: String,
    /// Its type.
    pub kind: FieldType,
}

impl Field {
    pub(super) fn parse(text: &str) -> Result<Self, FieldError> {
        let (kind, name) = description::field(text)?;
        Ok(Self {
            name: name.to_owned(),
            kind: FieldType::of(kind)?,
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}
