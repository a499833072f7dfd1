//! One field of an event: its type.

use std::fmt;

use usertrace_sys::description::{self, LabelWord, Type};
pub use usertrace_sys::description::{Element, FieldError, Integer, Scalar};

use super::percent;

/// A label of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Any text.
    pub name: String,
    /// The lowest value that it stands for.
    pub first: i128,
    /// The highest one.
    pub last: i128,
}

/// What a field is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// A number.
    Scalar(Scalar),
    /// Bytes up to a NUL, and the NUL.
    Str,
    /// An integer with names for some values, perhaps several for one. There is at least one.
    Enum(Integer, Vec<Label>),
    /// So many elements: at least one.
    Array(Element, u16),
    /// How many elements there are, as a `u32` in the machine's byte order, and they.
    Sequence(Element),
}

/// Bytes of what stands before a sequence's elements.
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

    /// Bytes of a value, if they do not depend on it.
    pub fn fixed_len(&self) -> Option<usize> {
        match self {
            FieldType::Scalar(scalar) => Some(scalar.size()),
            FieldType::Enum(integer, _) => Some(usize::from(integer.len)),
            FieldType::Array(element, len) => Some(element.size() * usize::from(*len)),
            FieldType::Str | FieldType::Sequence(_) => None,
        }
    }

    /// Length of such a field at the start of `bytes`; it may be more than there is. None: a string
    /// without end, or a sequence without beginning.
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
    /// Its name: not empty, no white space, no control characters.
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
