//! The values of fields, for those who compute with them.

use super::metadata::Field;
use crate::metadata::{Element, FieldType, Integer, Scalar};

/// Where the field of this index is among `bytes`, which all fields are in.
fn find<'a>(fields: &[Field], index: usize, mut bytes: &'a [u8]) -> Option<&'a [u8]> {
    for field in fields.get(..index)? {
        let len = match field.kind.fixed_len() {
            Some(len) => len,
            None => field.kind.len(bytes)?,
        };
        bytes = bytes.get(len..)?;
    }
    Some(bytes)
}

/// The bits of the field of this index, if it is an integer, a `bool` or an enumeration: with its sign in all that are above it.
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

/// The text of the field of this index, if it is one.
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

/// An integer's bits, with its sign in all that are above it.
#[inline]
pub(super) fn load(kind: Integer, bytes: &[u8]) -> u64 {
    fn first<const N: usize>(bytes: &[u8], swap: bool) -> [u8; N] {
        let mut bytes = *bytes.first_chunk().unwrap_or(&[0; N]);
        if swap {
            bytes.reverse();
        }
        bytes
    }
    // Marked are those only that are not in this machine's order.
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
        let event = crate::metadata::Event::parse(format!("1 t:e 6 {line}").as_bytes()).unwrap();
        Field {
            name: event.fields[0].name.clone(),
            kind: event.fields[0].kind.clone(),
            length_name: None,
        }
    }

    /// B1: each field is found behind those whose length varies, and nothing is read beyond the end.
    #[test]
    fn b1_values_are_found_behind_what_varies() {
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
