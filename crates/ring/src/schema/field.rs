//! One field of an event: its type.

use std::fmt;

use super::percent;

/// A field that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// It has no name, or one with white space.
    #[error("it is not TYPE NAME")]
    Name,
    /// There is no such type.
    #[error("unknown type")]
    Type,
    /// An array's length is not from 1 to 65535.
    #[error("bad length of an array")]
    Length,
    /// An enumeration is not of an integer.
    #[error("an enumeration of what is no integer")]
    NoInteger,
    /// A label is not `TEXT=VALUE` or `TEXT=VALUE..VALUE`, or its values are none of the type's.
    #[error("bad label")]
    Label,
    /// A marker's format is not the first field, or not encoded, or empty.
    #[error("bad format")]
    Format,
}

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Its length in bytes.
    pub len: u8,
    /// Is it signed?
    pub signed: bool,
    /// Should it be shown in hexadecimal?
    pub hex: bool,
    /// Is it in network byte order, not the machine's?
    pub big_endian: bool,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// An integer.
    Integer(Integer),
    /// An IEEE 754 number, in the machine's byte order.
    Float {
        /// Its length in bytes.
        len: u8,
    },
    /// A byte: 0 or 1.
    Bool,
}

/// What an array or a sequence is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Numbers.
    Scalar(Scalar),
    /// Bytes of a text (UTF-8), which ends before a NUL.
    Char,
}

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

impl Integer {
    fn parse(name: &str) -> Option<Self> {
        let (name, big_endian) = match name.strip_suffix("be") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (signed, hex) = match name.chars().next()? {
            'u' => (false, false),
            'x' => (false, true),
            's' => (true, false),
            _ => return None,
        };
        let len = match &name[1..] {
            "8" if !big_endian => 1,
            "16" => 2,
            "32" => 4,
            "64" => 8,
            _ => return None,
        };
        Some(Self {
            len,
            signed,
            hex,
            big_endian,
        })
    }

    /// Its lowest and its highest value.
    fn range(self) -> (i128, i128) {
        let values = 1i128 << (8 * self.len);
        if self.signed {
            (-values / 2, values / 2 - 1)
        } else {
            (0, values - 1)
        }
    }
}

impl fmt::Display for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.signed, self.hex) {
            (true, _) => 's',
            (false, true) => 'x',
            (false, false) => 'u',
        };
        let order = if self.big_endian { "be" } else { "" };
        write!(f, "{kind}{}{order}", u32::from(self.len) * 8)
    }
}

impl Scalar {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "f32" => Scalar::Float { len: 4 },
            "f64" => Scalar::Float { len: 8 },
            "bool" => Scalar::Bool,
            _ => Scalar::Integer(Integer::parse(name)?),
        })
    }

    /// Bytes of a value.
    pub fn size(self) -> usize {
        match self {
            Scalar::Integer(Integer { len, .. }) | Scalar::Float { len } => usize::from(len),
            Scalar::Bool => 1,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Integer(integer) => integer.fmt(f),
            Scalar::Float { len } => write!(f, "f{}", u32::from(*len) * 8),
            Scalar::Bool => f.write_str("bool"),
        }
    }
}

impl Element {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "c8" => Some(Element::Char),
            _ => Scalar::parse(name).map(Element::Scalar),
        }
    }

    fn len(self) -> usize {
        match self {
            Element::Scalar(scalar) => scalar.size(),
            Element::Char => 1,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Scalar(scalar) => scalar.fmt(f),
            Element::Char => f.write_str("c8"),
        }
    }
}

impl Label {
    fn parse(text: &str, of: Integer) -> Option<Self> {
        let (name, values) = text.split_once('=')?;
        let (first, last) = values.split_once("..").unwrap_or((values, values));
        let (first, last) = (integer(first)?, integer(last)?);
        let (lowest, highest) = of.range();
        let name = percent::decode(name)?;
        let is_good = lowest <= first && first <= last && last <= highest;
        is_good.then_some(Self { name, first, last })
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

/// A decimal number, of digits and perhaps a minus only.
fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

impl FieldType {
    pub(super) fn parse(text: &str) -> Result<Self, FieldError> {
        if let Some((of, labels)) = text.strip_suffix('}').and_then(|t| t.split_once('{')) {
            let of = Integer::parse(of).ok_or(FieldError::NoInteger)?;
            let labels = labels
                .split(',')
                .map(|label| Label::parse(label, of).ok_or(FieldError::Label))
                .collect::<Result<_, _>>()?;
            return Ok(FieldType::Enum(of, labels));
        }
        if let Some((element, len)) = text.strip_suffix(']').and_then(|t| t.split_once('[')) {
            let element = Element::parse(element).ok_or(FieldError::Type)?;
            if len.is_empty() {
                return Ok(FieldType::Sequence(element));
            }
            let len = integer(len).and_then(|len| u16::try_from(len).ok());
            let len = len.filter(|&len| len > 0).ok_or(FieldError::Length)?;
            return Ok(FieldType::Array(element, len));
        }
        match text {
            "str" => Ok(FieldType::Str),
            _ => Scalar::parse(text)
                .map(FieldType::Scalar)
                .ok_or(FieldError::Type),
        }
    }

    /// Bytes of a value, if they do not depend on it.
    pub fn fixed_len(&self) -> Option<usize> {
        match self {
            FieldType::Scalar(scalar) => Some(scalar.size()),
            FieldType::Enum(integer, _) => Some(usize::from(integer.len)),
            FieldType::Array(element, len) => Some(element.len() * usize::from(*len)),
            FieldType::Str | FieldType::Sequence(_) => None,
        }
    }

    /// Length of such a field at the start of `bytes`; it may be more than there is. None: a string without end, or a
    /// sequence without beginning.
    pub fn len(&self, bytes: &[u8]) -> Option<usize> {
        match self {
            FieldType::Str => bytes.iter().position(|&b| b == 0).map(|nul| nul + 1),
            FieldType::Sequence(element) => {
                let count = u32::from_ne_bytes(*bytes.first_chunk()?);
                let len = usize::try_from(count).ok()?.checked_mul(element.len())?;
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
        let (kind, name) = text.split_once(' ').ok_or(FieldError::Name)?;
        if !super::words::is_name(name) {
            return Err(FieldError::Name);
        }
        Ok(Self {
            name: name.to_owned(),
            kind: FieldType::parse(kind)?,
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}
