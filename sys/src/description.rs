//! The grammar of descriptions of events, as the header `linux/ltt.h` has it (`LTT_ID_META`).
//!
//! Nothing here allocates: a traced program looks at its own descriptions by it ([`is_event`]), and
//! readers make their types of what it finds.

use std::fmt;

use crate::uapi::LTT_META_MAX;
use crate::word::decoded;

/// A field that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldError {
    /// It has no name, or one with white space.
    Name,
    /// There is no such type.
    Type,
    /// An array's length is not from 1 to 65535.
    Length,
    /// An enumeration is not of an integer.
    NoInteger,
    /// A label is not `TEXT=VALUE` or `TEXT=VALUE..VALUE`, or its values are none of the type's.
    Label,
    /// A marker's format is not the first field, or not encoded, or empty.
    Format,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "it is not TYPE NAME",
            Self::Type => "unknown type",
            Self::Length => "bad length of an array",
            Self::NoInteger => "an enumeration of what is no integer",
            Self::Label => "bad label",
            Self::Format => "bad format",
        })
    }
}

impl std::error::Error for FieldError {}

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Its length in bytes.
    pub len: u8,
    /// It is signed.
    pub signed: bool,
    /// It is shown in hexadecimal.
    pub hex: bool,
    /// It is in network byte order, not the machine's.
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

/// The type of a field. Labels are as the description has them: see [`labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type<'a> {
    /// A number.
    Scalar(Scalar),
    /// Bytes up to a NUL, and the NUL.
    Str,
    /// An integer, and the labels of some values.
    Enum(Integer, &'a str),
    /// So many elements: at least one.
    Array(Element, u16),
    /// A `u32` that says how many elements there are, and they.
    Sequence(Element),
}

/// A label of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelWord<'a> {
    /// Its text, as a word: see [`word`](crate::word).
    pub name: &'a str,
    /// The lowest value that it stands for.
    pub first: i128,
    /// The highest one.
    pub last: i128,
}

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
    #[must_use]
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

    /// Bytes of an element.
    #[must_use]
    pub fn size(self) -> usize {
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

impl<'a> Type<'a> {
    /// Parses a type. Its labels are not looked at.
    ///
    /// # Errors
    /// When there is no such type.
    pub fn parse(text: &'a str) -> Result<Self, FieldError> {
        if let Some((of, labels)) = text.strip_suffix('}').and_then(|t| t.split_once('{')) {
            let of = Integer::parse(of).ok_or(FieldError::NoInteger)?;
            return Ok(Self::Enum(of, labels));
        }
        if let Some((element, len)) = text.strip_suffix(']').and_then(|t| t.split_once('[')) {
            let element = Element::parse(element).ok_or(FieldError::Type)?;
            if len.is_empty() {
                return Ok(Self::Sequence(element));
            }
            let len = integer(len).and_then(|len| u16::try_from(len).ok());
            let len = len.filter(|&len| len > 0).ok_or(FieldError::Length)?;
            return Ok(Self::Array(element, len));
        }
        match text {
            "str" => Ok(Self::Str),
            _ => Scalar::parse(text)
                .map(Self::Scalar)
                .ok_or(FieldError::Type),
        }
    }
}

/// The labels of an enumeration of such integers.
///
/// # Errors
/// Each that is none.
pub fn labels(text: &str, of: Integer) -> impl Iterator<Item = Result<LabelWord<'_>, FieldError>> {
    text.split(',')
        .map(move |label| label_word(label, of).ok_or(FieldError::Label))
}

fn label_word(text: &str, of: Integer) -> Option<LabelWord<'_>> {
    let (name, values) = text.split_once('=')?;
    let (first, last) = values.split_once("..").unwrap_or((values, values));
    let (first, last) = (integer(first)?, integer(last)?);
    let (lowest, highest) = of.range();
    let is_good = lowest <= first && first <= last && last <= highest && is_text_word(name);
    is_good.then_some(LabelWord { name, first, last })
}

/// The type and the name of a field, `TYPE NAME`.
///
/// # Errors
/// When it is no field.
pub fn field(text: &str) -> Result<(Type<'_>, &str), FieldError> {
    let (kind, name) = text.split_once(' ').ok_or(FieldError::Name)?;
    if !is_name(name) {
        return Err(FieldError::Name);
    }
    Ok((Type::parse(kind)?, name))
}

/// The format of a marker, which is the field with this index. None: the field is no format.
///
/// # Errors
/// When it is one that is empty, not encoded, or not the first field.
pub fn format(text: &str, index: usize) -> Result<Option<&str>, FieldError> {
    match text.strip_prefix("fmt ") {
        None => Ok(None),
        Some(word) if index == 0 && !word.is_empty() && is_text_word(word) => Ok(Some(word)),
        Some(_) => Err(FieldError::Format),
    }
}

/// Whether a word stands for a text in UTF-8.
fn is_text_word(word: &str) -> bool {
    // Each byte takes at least one in the word.
    let mut bytes = [0u8; LTT_META_MAX];
    let mut len = 0;
    for byte in decoded(word) {
        match (byte, bytes.get_mut(len)) {
            (Some(byte), Some(place)) => *place = byte,
            _ => return false,
        }
        len += 1;
    }
    std::str::from_utf8(&bytes[..len]).is_ok()
}

/// A decimal number, of digits only.
#[must_use]
pub fn decimal(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Whether this can be the name of a field, or a part of an event's.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace)
}

/// Whether this can be the name of an event, `PROVIDER:NAME`.
#[must_use]
pub fn is_event_name(text: &str) -> bool {
    let parts = text.split_once(':');
    is_name(text) && parts.is_some_and(|(provider, name)| !provider.is_empty() && !name.is_empty())
}

/// The parts of an event's description, `ID PROVIDER:NAME LOGLEVEL[ FIELDS]`: its name, its log
/// level and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventWords<'a> {
    /// Its id, whatever that is.
    pub id: &'a str,
    /// `PROVIDER:NAME`
    pub name: &'a str,
    /// Its log level.
    pub loglevel: &'a str,
    /// Its fields, with semicolons between them, if it has some.
    pub fields: Option<&'a str>,
}

/// Takes a line apart. What is missing is empty.
#[must_use]
pub fn words(line: &str) -> EventWords<'_> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default();
    EventWords {
        id: word(),
        name: word(),
        loglevel: word(),
        fields: words.next(),
    }
}

/// Whether this describes an event so that readers understand it: the line without its id.
#[must_use]
pub fn is_event(description: &str) -> bool {
    // With an id in front of it, of the most digits.
    if description.len() + "65535 ".len() >= LTT_META_MAX
        || description.chars().any(char::is_control)
    {
        return false;
    }
    let mut words = description.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_default();
    let is_head = is_event_name(word()) && decimal(word()).is_some();
    let are_fields = |fields: &str| fields.split(';').enumerate().all(is_field);
    is_head && words.next().is_none_or(are_fields)
}

fn is_field((index, text): (usize, &str)) -> bool {
    match format(text, index) {
        Ok(Some(_)) => return true,
        Err(_) => return false,
        Ok(None) => {}
    }
    match field(text) {
        Ok((Type::Enum(of, text), _)) => labels(text, of).all(|label| label.is_ok()),
        Ok(_) => true,
        Err(_) => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_one_or_not() {
        for good in [
            "a:b 0",
            "a:b 14 u8 x",
            "a:b 3 fmt %7Bx%7D;u32be[] x;c8[65535] y",
            "a:b 3 s16{a%2Cb=-1..7,c=8} x",
        ] {
            assert!(is_event(good), "{good}");
        }
        for bad in [
            "",
            "a:b",
            "a 0",
            ":b 0",
            "a:b x",
            "a:b 0 ",
            "a:b 0 u24 x",
            "a:b 0 u8",
            "a:b 0 u8 x;fmt y",
            "a:b 0 fmt %7b",
            "a:b 0 fmt %FF",
            "a:b 0 u8[0] x",
            "a:b 0 f32{a=1} x",
            "a:b 0 u8{a=256} x",
            "a:b 0 u8{a=2..1} x",
            "a:b 0\n",
        ] {
            assert!(!is_event(bad), "{bad}");
        }
        let longest = LTT_META_MAX - "65535 ".len() - 1;
        let name = format!("a:{:b<width$} 0", "b", width = longest - "a: 0".len());
        assert!(is_event(&name));
        assert!(!is_event(&format!("a{name}")));
    }
}
