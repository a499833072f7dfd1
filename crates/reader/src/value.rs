//! Values of an event's fields.

use usertrace_ring::schema::{Element, FieldType, Integer, Label, Scalar};

use crate::field::Field;

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Scalar(Number),
    /// A string: any bytes except NUL, as the program wrote it.
    Text(&'a [u8]),
    /// A number with labels.
    Enum(Enumeration<'a>),
    /// An array or a sequence of numbers.
    List(List<'a>),
}

/// Value of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer: its type and its bits, sign-extended.
    Integer(Integer, u64),
    /// A byte, which should be 0 or 1.
    Bool(u8),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
}

impl Number {
    /// Reads a number at the start of `bytes`, and returns its length. Missing bytes are 0.
    #[inline]
    fn read(kind: Scalar, bytes: &[u8]) -> (Self, usize) {
        match kind {
            Scalar::Integer(kind) => (Self::Integer(kind, load(kind, bytes)), kind.len.into()),
            Scalar::Bool => (Self::Bool(bytes.first().copied().unwrap_or(0)), 1),
            Scalar::Float { len: 4 } => {
                let bytes = *bytes.first_chunk().unwrap_or(&[0; 4]);
                (Self::F32(f32::from_ne_bytes(bytes)), 4)
            }
            Scalar::Float { .. } => {
                let bytes = *bytes.first_chunk().unwrap_or(&[0; 8]);
                (Self::F64(f64::from_ne_bytes(bytes)), 8)
            }
        }
    }
}

/// Value of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumeration<'a> {
    /// Its type.
    pub kind: Integer,
    /// Its bits, sign-extended.
    pub bits: u64,
    labels: &'a [Label],
}

impl<'a> Enumeration<'a> {
    /// The labels of the value, each once.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = *self;
        std::iter::from_fn(move || rest.take_name())
    }

    /// Takes the next label of the value. It and those before it are gone then.
    pub(super) fn take_name(&mut self) -> Option<&'a str> {
        let value = match self.kind.signed {
            true => i128::from(self.bits.cast_signed()),
            false => i128::from(self.bits),
        };
        let contains = |label: &Label| (label.first..=label.last).contains(&value);
        let at = self.labels.iter().position(contains)?;
        let (label, rest) = self.labels.get(at..)?.split_first()?;
        // Ranges of the same label are adjacent.
        let same = rest.iter().take_while(|other| other.name == label.name);
        self.labels = rest.get(same.count()..)?;
        Some(&label.name)
    }
}

/// The elements of an array or a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a> {
    kind: Scalar,
    left: usize,
    bytes: &'a [u8],
}

impl Iterator for List<'_> {
    type Item = Number;

    #[inline]
    fn next(&mut self) -> Option<Number> {
        // Bounds the iteration by the bytes, whatever the count is.
        if self.bytes.is_empty() {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let (number, len) = Number::read(self.kind, self.bytes);
        self.bytes = self.bytes.get(len..).unwrap_or_default();
        Some(number)
    }
}

/// Iterates over fields and their values.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    fields: std::slice::Iter<'a, Field>,
    bytes: &'a [u8],
}

impl<'a> Values<'a> {
    /// Iterates over fields in `bytes`. Those of an [`Event`](super::Event) are known to be
    /// complete. Otherwise, missing values are 0 or empty.
    #[inline]
    #[must_use]
    pub fn new(fields: &'a [Field], bytes: &'a [u8]) -> Self {
        Self {
            fields: fields.iter(),
            bytes,
        }
    }

    /// The number of elements, if the next field is a sequence.
    #[inline]
    pub(super) fn count_ahead(&self) -> u32 {
        count(self.bytes)
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = (&'a Field, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = self.fields.next()?;
        let (value, len) = read(&field.kind, self.bytes);
        self.bytes = self.bytes.get(len..).unwrap_or_default();
        Some((field, value))
    }
}

impl List<'_> {
    /// The elements, if they are integers of 64 bits in the machine's byte order.
    #[inline]
    #[must_use]
    pub fn words(&self) -> Option<impl ExactSizeIterator<Item = u64>> {
        let is_plain = matches!(
            self.kind,
            Scalar::Integer(Integer {
                len: 8,
                big_endian: false,
                ..
            })
        );
        let (words, _) = self.bytes.as_chunks::<8>();
        let words = &words[..self.left.min(words.len())];
        is_plain.then(|| words.iter().map(|word| u64::from_ne_bytes(*word)))
    }

    /// The element with this index.
    pub(super) fn get(&self, index: usize) -> Option<Number> {
        let at = index.checked_mul(self.kind.size())?;
        let bytes = self.bytes.get(at..).filter(|bytes| !bytes.is_empty());
        let bytes = bytes.filter(|_| index < self.left)?;
        Some(Number::read(self.kind, bytes).0)
    }
}

/// Reads the field at the start of `bytes`, and returns its length.
#[inline]
pub(super) fn read<'a>(kind: &'a FieldType, bytes: &'a [u8]) -> (Value<'a>, usize) {
    match kind {
        FieldType::Scalar(kind) => {
            let (number, len) = Number::read(*kind, bytes);
            (Value::Scalar(number), len)
        }
        FieldType::Str => {
            let text = up_to_nul(bytes);
            (Value::Text(text), text.len() + 1)
        }
        FieldType::Enum(kind, labels) => {
            let enumeration = Enumeration {
                kind: *kind,
                bits: load(*kind, bytes),
                labels,
            };
            (Value::Enum(enumeration), kind.len.into())
        }
        FieldType::Array(element, len) => elements(*element, (*len).into(), bytes),
        FieldType::Sequence(element) => {
            let (count, bytes) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
            let (value, len) = elements(*element, u32::from_ne_bytes(*count) as usize, bytes);
            (value, size_of::<u32>() + len)
        }
    }
}

fn up_to_nul(bytes: &[u8]) -> &[u8] {
    let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    &bytes[..len]
}

fn elements(element: Element, count: usize, bytes: &[u8]) -> (Value<'_>, usize) {
    match element {
        Element::Char => {
            let text = up_to_nul(&bytes[..count.min(bytes.len())]);
            (Value::Text(text), count)
        }
        Element::Scalar(kind) => {
            let list = List {
                kind,
                left: count,
                bytes,
            };
            (Value::List(list), count.saturating_mul(kind.size()))
        }
    }
}

/// The number of elements of the sequence at the start of `bytes`.
#[inline]
pub(super) fn count(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(*bytes.first_chunk().unwrap_or(&[0; 4]))
}

/// The bytes from the field with this index on.
pub(super) fn find<'a>(fields: &[Field], index: usize, mut bytes: &'a [u8]) -> Option<&'a [u8]> {
    for field in fields.get(..index)? {
        let len = match field.kind.fixed_len() {
            Some(len) => len,
            None => field.kind.len(bytes)?,
        };
        bytes = bytes.get(len..)?;
    }
    Some(bytes)
}

/// The bits of a field, sign-extended, if it is an integer, a `bool` or an enumeration.
#[must_use]
pub fn integer(fields: &[Field], index: usize, bytes: &[u8]) -> Option<u64> {
    let bytes = find(fields, index, bytes)?;
    match &fields.get(index)?.kind {
        FieldType::Scalar(Scalar::Integer(kind)) | FieldType::Enum(kind, _) => {
            Some(load(*kind, bytes))
        }
        FieldType::Scalar(Scalar::Bool) => Some(u64::from(*bytes.first()?)),
        _ => None,
    }
}

/// The text of a field, if it is a string.
#[must_use]
pub fn text<'a>(fields: &[Field], index: usize, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let bytes = find(fields, index, bytes)?;
    let bytes = match fields.get(index)?.kind {
        FieldType::Str => bytes,
        FieldType::Array(Element::Char, len) => bytes.get(..len.into())?,
        FieldType::Sequence(Element::Char) => {
            let (count, bytes) = bytes.split_first_chunk()?;
            bytes.get(..u32::from_ne_bytes(*count) as usize)?
        }
        _ => return None,
    };
    bytes.split(|&b| b == 0).next()
}

/// Loads an integer, sign-extended.
#[inline]
fn load(kind: Integer, bytes: &[u8]) -> u64 {
    fn first<const N: usize>(bytes: &[u8], swap: bool) -> [u8; N] {
        let mut bytes = *bytes.first_chunk().unwrap_or(&[0; N]);
        if swap {
            bytes.reverse();
        }
        bytes
    }
    // Only a type in the other byte order is marked.
    let swap = kind.big_endian;
    match (kind.len, kind.signed) {
        (1, false) => u8::from_ne_bytes(first(bytes, false)).into(),
        (2, false) => u16::from_ne_bytes(first(bytes, swap)).into(),
        (4, false) => u32::from_ne_bytes(first(bytes, swap)).into(),
        (1, true) => i64::from(i8::from_ne_bytes(first(bytes, false))).cast_unsigned(),
        (2, true) => i64::from(i16::from_ne_bytes(first(bytes, swap))).cast_unsigned(),
        (4, true) => i64::from(i32::from_ne_bytes(first(bytes, swap))).cast_unsigned(),
        _ => u64::from_ne_bytes(first(bytes, swap)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(line: &str) -> Field {
        let event =
            usertrace_ring::schema::Event::parse(format!("1 t:e 6 {line}").as_bytes()).unwrap();
        Field {
            name: event.fields[0].name.clone(),
            kind: event.fields[0].kind.clone(),
            length_name: None,
        }
    }

    /// Fields are found behind fields of variable length, and nothing beyond the end is read.
    ///
    /// Requirements: B1
    #[test]
    fn values_follow_fields_of_variable_length() {
        let fields: Vec<Field> = [
            "str s",
            "s16 n",
            "u8[] bytes",
            "u16be b",
            "bool yes",
            "f64 f",
        ]
        .into_iter()
        .map(field)
        .collect();
        let mut bytes = b"text\0".to_vec();
        bytes.extend((-2i16).to_ne_bytes());
        bytes.extend(3u32.to_ne_bytes());
        bytes.extend([9, 8, 7]);
        bytes.extend(0x1234u16.to_be_bytes());
        bytes.push(1);
        bytes.extend(1.5f64.to_ne_bytes());
        assert_eq!(text(&fields, 0, &bytes), Some(&b"text"[..]));
        assert_eq!(integer(&fields, 1, &bytes), Some((-2i64).cast_unsigned()));
        assert_eq!(integer(&fields, 3, &bytes), Some(0x1234));
        assert_eq!(integer(&fields, 4, &bytes), Some(1));
        for other in [0, 2, 5, 6, 100] {
            assert_eq!(integer(&fields, other, &bytes), None);
        }
        assert_eq!(text(&fields, 1, &bytes), None);
        for len in 0..7 {
            assert_eq!(integer(&fields, 3, &bytes[..len]), None);
        }
    }
}
