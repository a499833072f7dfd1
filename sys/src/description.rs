//! The grammar of event descriptions, as in the header `linux/ltt.h` (`LTT_ID_META`).
//!
//! Nothing here allocates: traced programs check their own descriptions ([`is_event`]), and readers
//! build their types from the results.

use std::fmt;

use crate::uapi::LTT_META_MAX;
use crate::word::decoded;

/// Why a field is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldError {
    /// It has no name, or a name with white space.
    Name,
    /// The type is unknown.
    Type,
    /// An array's length is not in 1 to 65535.
    Length,
    /// The base type of an enumeration is not an integer.
    NoInteger,
    /// A label is not `TEXT=VALUE` or `TEXT=VALUE..VALUE`, or its values exceed the type.
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
    /// It is displayed in hexadecimal.
    pub hex: bool,
    /// It is in network byte order, not in native byte order.
    pub big_endian: bool,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// An integer.
    Integer(Integer),
    /// An IEEE 754 number, in native byte order.
    Float {
        /// Its length in bytes.
        len: u8,
    },
    /// A byte: 0 or 1.
    Bool,
}

/// The element type of an array or a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Numbers.
    Scalar(Scalar),
    /// Bytes of a text (UTF-8), which ends before a NUL.
    Char,
}

/// The type of a field. Labels are not parsed: see [`labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type<'a> {
    /// A number.
    Scalar(Scalar),
    /// Bytes up to a NUL, and the NUL.
    Str,
    /// An integer, and the labels of some values.
    Enum(Integer, &'a str),
    /// A fixed number of elements, at least one.
    Array(Element, u16),
    /// A `u32` count, and the elements.
    Sequence(Element),
}

/// A label of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelWord<'a> {
    /// Its text, encoded as a word: see [`word`](crate::word).
    pub name: &'a str,
    /// The lowest value.
    pub first: i128,
    /// The highest value.
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

    /// The lowest and the highest value.
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
    /// Parses a type, but not its labels.
    ///
    /// # Errors
    /// If the type is invalid.
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

/// Parses the labels of an enumeration with this base type.
///
/// # Errors
/// An item for each invalid label.
pub fn labels(text: &str, of: Integer) -> impl Iterator<Item = Result<LabelWord<'_>, FieldError>> {
    text.split(',')
        .map(move |label| label_word(label, of).ok_or(FieldError::Label))
}

/// Takes the next label of a value, encoded as a word, and returns the labels after it. None after
/// the last one. `text` has labels that [`labels`] accepts.
#[must_use]
pub fn label_of(text: &str, value: i128) -> Option<(&str, &str)> {
    let mut rest = Some(text);
    while let Some(text) = rest {
        let (label, behind) = match text.split_once(',') {
            Some((label, behind)) => (label, Some(behind)),
            None => (text, None),
        };
        rest = behind;
        let (name, values) = label.split_once('=')?;
        let (first, last) = values.split_once("..").unwrap_or((values, values));
        if (integer(first)?..=integer(last)?).contains(&value) {
            return Some((name, behind.unwrap_or_default()));
        }
    }
    None
}

fn label_word(text: &str, of: Integer) -> Option<LabelWord<'_>> {
    let (name, values) = text.split_once('=')?;
    let (first, last) = values.split_once("..").unwrap_or((values, values));
    let (first, last) = (integer(first)?, integer(last)?);
    let (lowest, highest) = of.range();
    let is_good = lowest <= first && first <= last && last <= highest && is_text_word(name);
    is_good.then_some(LabelWord { name, first, last })
}

/// Parses a field, `TYPE NAME`, into its type and its name.
///
/// # Errors
/// If the field is invalid.
pub fn field(text: &str) -> Result<(Type<'_>, &str), FieldError> {
    let (kind, name) = text.split_once(' ').ok_or(FieldError::Name)?;
    if !is_name(name) {
        return Err(FieldError::Name);
    }
    Ok((Type::parse(kind)?, name))
}

/// Parses the format of a marker, the field with this index. None if the field is not a format.
///
/// # Errors
/// If the format is empty, not encoded, or not the first field.
pub fn format(text: &str, index: usize) -> Result<Option<&str>, FieldError> {
    match text.strip_prefix("fmt ") {
        None => Ok(None),
        Some(word) if index == 0 && !word.is_empty() && is_text_word(word) => Ok(Some(word)),
        Some(_) => Err(FieldError::Format),
    }
}

/// True if a word encodes a text in UTF-8.
fn is_text_word(word: &str) -> bool {
    // Each byte takes at least one byte in the word, so the buffer suffices.
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

/// Parses a decimal number of digits only. It has no leading zeros, so that each number has one
/// form, and what is formatted again is the same.
#[must_use]
pub fn decimal(text: &str) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    (is_digits && !has_leading_zero).then(|| text.parse().ok())?
}

/// True if the text can be the name of a field, or a part of an event's name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace)
}

/// True if the text can be the name of an event, `PROVIDER:NAME`.
#[must_use]
pub fn is_event_name(text: &str) -> bool {
    let parts = text.split_once(':');
    is_name(text) && parts.is_some_and(|(provider, name)| !provider.is_empty() && !name.is_empty())
}

/// The parts of an event's description, `ID PROVIDER:NAME LOGLEVEL[ FIELDS]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventWords<'a> {
    /// Its id, not parsed.
    pub id: &'a str,
    /// `PROVIDER:NAME`
    pub name: &'a str,
    /// Its log level.
    pub loglevel: &'a str,
    /// Its fields, separated by semicolons, if it has any.
    pub fields: Option<&'a str>,
}

/// Splits a line into its parts. Missing parts are empty.
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

/// True if readers can parse this description of an event, a line without its id.
#[must_use]
pub fn is_event(description: &str) -> bool {
    // The longest id must fit in front of it.
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

/// Parses a decimal number of digits and an optional minus sign.
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
    fn invalid_descriptions_are_rejected() {
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
            "a:b 06",
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
