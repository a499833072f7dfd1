//! One event's description.

use usertrace_sys::uapi::{LTT_ID_MAX, LTT_ID_MIN, LTT_META_MAX};

/// A description that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// Longer than a description can be.
    #[error("longer than {LTT_META_MAX} bytes")]
    TooLong,
    /// Not UTF-8, or with control characters.
    #[error("not text")]
    NotText,
    /// The id is missing, not a number, or none of an event's.
    #[error("bad event id")]
    Id,
    /// The name is missing, or not `PROVIDER:NAME`.
    #[error("bad event name")]
    Name,
    /// The log level is missing, or not a number.
    #[error("bad log level")]
    Loglevel,
    /// A field is not `TYPE FIELD`, or of an unknown type.
    #[error("bad field {0}")]
    Field(usize),
    /// The id has another description.
    #[error("event id {0} has another description")]
    Conflict(u16),
}

/// What a field is. Its bytes are in the machine's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// An integer.
    Integer {
        /// Its length in bytes.
        len: u8,
        /// Is it signed?
        signed: bool,
        /// Should it be shown in hexadecimal?
        hex: bool,
    },
    /// An IEEE 754 number.
    Float {
        /// Its length in bytes.
        len: u8,
    },
    /// A byte: 0 or 1.
    Bool,
    /// Bytes up to a NUL, and the NUL.
    Str,
}

impl FieldType {
    fn parse(name: &str) -> Option<Self> {
        let integer = |len, signed, hex| FieldType::Integer { len, signed, hex };
        Some(match name {
            "u8" => integer(1, false, false),
            "u16" => integer(2, false, false),
            "u32" => integer(4, false, false),
            "u64" => integer(8, false, false),
            "x8" => integer(1, false, true),
            "x16" => integer(2, false, true),
            "x32" => integer(4, false, true),
            "x64" => integer(8, false, true),
            "s8" => integer(1, true, false),
            "s16" => integer(2, true, false),
            "s32" => integer(4, true, false),
            "s64" => integer(8, true, false),
            "f32" => FieldType::Float { len: 4 },
            "f64" => FieldType::Float { len: 8 },
            "bool" => FieldType::Bool,
            "str" => FieldType::Str,
            _ => return None,
        })
    }

    fn name(self) -> String {
        match self {
            FieldType::Integer { len, signed, hex } => {
                let kind = match (signed, hex) {
                    (true, _) => 's',
                    (false, true) => 'x',
                    (false, false) => 'u',
                };
                format!("{kind}{}", u32::from(len) * 8)
            }
            FieldType::Float { len } => format!("f{}", u32::from(len) * 8),
            FieldType::Bool => "bool".to_owned(),
            FieldType::Str => "str".to_owned(),
        }
    }

    /// Bytes of a value, if they do not depend on it.
    fn fixed_len(self) -> Option<usize> {
        match self {
            FieldType::Integer { len, .. } | FieldType::Float { len } => Some(usize::from(len)),
            FieldType::Bool => Some(1),
            FieldType::Str => None,
        }
    }

    /// Length of such a field at the start of `bytes`; it may be more than there is. None: a string without end.
    fn len(self, bytes: &[u8]) -> Option<usize> {
        match self {
            FieldType::Integer { .. } | FieldType::Float { .. } | FieldType::Bool => {
                self.fixed_len()
            }
            FieldType::Str => bytes.iter().position(|&b| b == 0).map(|nul| nul + 1),
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

/// An event, as its process described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id in this process: from [`LTT_ID_MIN`] to [`LTT_ID_MAX`].
    pub id: u16,
    /// `PROVIDER:NAME`: no white space, no control characters.
    pub name: String,
    /// Its log level.
    pub loglevel: u32,
    /// Its fields, in the order in which they are in the payload.
    pub fields: Vec<Field>,
}

impl Event {
    /// Parses a description, with or without the NUL at its end.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(line: &[u8]) -> Result<Self, DescriptionError> {
        let line = line.strip_suffix(&[0]).unwrap_or(line);
        if line.len() >= LTT_META_MAX {
            return Err(DescriptionError::TooLong);
        }
        let line = std::str::from_utf8(line).map_err(|_| DescriptionError::NotText)?;
        if line.chars().any(char::is_control) {
            return Err(DescriptionError::NotText);
        }
        let mut words = line.splitn(4, ' ');
        let id = words
            .next()
            .and_then(decimal)
            .filter(|id| (u32::from(LTT_ID_MIN)..=u32::from(LTT_ID_MAX)).contains(id))
            .ok_or(DescriptionError::Id)? as u16;
        let name = words
            .next()
            .filter(|name| is_name(name))
            .filter(|name| matches!(name.split_once(':'), Some((p, n)) if !p.is_empty() && !n.is_empty()))
            .ok_or(DescriptionError::Name)?;
        let loglevel = words
            .next()
            .and_then(decimal)
            .ok_or(DescriptionError::Loglevel)?;
        let fields = match words.next() {
            None => Vec::new(),
            Some(fields) => fields
                .split(';')
                .enumerate()
                .map(|(index, field)| parse_field(field).ok_or(DescriptionError::Field(index)))
                .collect::<Result<_, _>>()?,
        };
        Ok(Self {
            id,
            name: name.to_owned(),
            loglevel,
            fields,
        })
    }

    /// Its description, as it is parsed.
    #[must_use]
    pub fn line(&self) -> String {
        let fields = self.fields.iter();
        let fields: Vec<_> = fields
            .map(|field| format!("{} {}", field.kind.name(), field.name))
            .collect();
        let space = if fields.is_empty() { "" } else { " " };
        let (id, name, loglevel) = (self.id, &self.name, self.loglevel);
        format!("{id} {name} {loglevel}{space}{}", fields.join(";"))
    }

    /// Length of the payload at the start of `bytes`; None if it does not end there.
    #[must_use]
    pub fn payload_len(&self, bytes: &[u8]) -> Option<usize> {
        let mut len = 0usize;
        for field in &self.fields {
            len = len.checked_add(field.kind.len(bytes.get(len..)?)?)?;
        }
        (len <= bytes.len()).then_some(len)
    }

    /// Length of each payload, if that does not depend on the values.
    pub(super) fn fixed_len(&self) -> Option<usize> {
        let mut fields = self.fields.iter();
        fields.try_fold(0usize, |len, field| {
            len.checked_add(field.kind.fixed_len()?)
        })
    }
}

/// A decimal number, of digits only.
fn decimal(text: &str) -> Option<u32> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace)
}

fn parse_field(text: &str) -> Option<Field> {
    let (kind, name) = text.split_once(' ')?;
    let kind = FieldType::parse(kind)?;
    is_name(name).then(|| Field {
        name: name.to_owned(),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEX64: FieldType = FieldType::Integer {
        len: 8,
        signed: false,
        hex: true,
    };

    #[test]
    fn a_description_is_parsed() {
        let event =
            Event::parse(b"17 libc:malloc 13 u64 size;x64 address;str why;s8 t;f32 f;bool b\0");
        let event = event.unwrap();
        assert_eq!(
            (event.id, &event.name[..], event.loglevel),
            (17, "libc:malloc", 13)
        );
        let names: Vec<_> = event.fields.iter().map(|f| &f.name[..]).collect();
        assert_eq!(names, ["size", "address", "why", "t", "f", "b"]);
        assert_eq!(event.fields[1].kind, HEX64);
        assert_eq!(event.fields[2].kind, FieldType::Str);
        assert_eq!(event.fields[5].kind, FieldType::Bool);
        let line = "9 a:b 3 u8 a;u16 b;u32 c;u64 d;x8 e;x16 f;x32 g;x64 h;s8 i;s16 j;s32 k;s64 l;f32 m;f64 n;bool o;str p";
        assert_eq!(Event::parse(line.as_bytes()).unwrap().line(), line);
        let event = Event::parse(b"1 a:b 0").unwrap();
        assert_eq!((event.fields.len(), &event.line()[..]), (0, "1 a:b 0"));
    }

    #[test]
    fn what_is_not_a_description_is_refused() {
        for (line, error) in [
            (&b""[..], DescriptionError::Id),
            (b"0 a:b 0", DescriptionError::Id),
            (b"65520 a:b 0", DescriptionError::Id),
            (b"+1 a:b 0", DescriptionError::Id),
            (b"4294967297 a:b 0", DescriptionError::Id),
            (b"1", DescriptionError::Name),
            (b"1 ab 0", DescriptionError::Name),
            (b"1 :b 0", DescriptionError::Name),
            (b"1 a: 0", DescriptionError::Name),
            (b"1 a:b", DescriptionError::Loglevel),
            (b"1 a:b -1", DescriptionError::Loglevel),
            (b"1 a:b 0 ", DescriptionError::Field(0)),
            (b"1 a:b 0 u32", DescriptionError::Field(0)),
            (b"1 a:b 0 u32 ", DescriptionError::Field(0)),
            (b"1 a:b 0 u32 x;", DescriptionError::Field(1)),
            (b"1 a:b 0 u32 x;u24 y", DescriptionError::Field(1)),
            (b"1 a:b 0 u32 x y", DescriptionError::Field(0)),
            (b"1 a:b\n0", DescriptionError::NotText),
            (b"1 a:b\0 0", DescriptionError::NotText),
            (b"1 a:\xff 0", DescriptionError::NotText),
        ] {
            assert_eq!(Event::parse(line), Err(error), "{}", line.escape_ascii());
        }
        let long = [b"1 a:".to_vec(), vec![b'x'; LTT_META_MAX]].concat();
        assert_eq!(Event::parse(&long), Err(DescriptionError::TooLong));
    }

    #[test]
    fn a_payload_ends_where_its_fields_do() {
        let event = Event::parse(b"1 a:b 0 u16 x;str s;u8 y").unwrap();
        assert_eq!(event.payload_len(b"xxabc\0y"), Some(7));
        assert_eq!(event.payload_len(b"xxabc\0yzzzz"), Some(7));
        assert_eq!(event.payload_len(b"xx\0y"), Some(4));
        assert_eq!(event.payload_len(b"xxabc\0"), None);
        assert_eq!(event.payload_len(b"xxabc"), None);
        assert_eq!(event.payload_len(b"x"), None);
        assert_eq!(event.payload_len(b""), None);
        let empty = Event::parse(b"1 a:b 0").unwrap();
        assert_eq!(empty.payload_len(b""), Some(0));
    }

    proptest! {
        /// F4.
        #[test]
        fn no_line_is_too_strange(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Event::parse(&line);
        }

        /// F4: lines that are nearly right, and payloads of anything.
        #[test]
        fn no_payload_is_too_strange(
            line in "[0-9]{1,6} [a-z:]{1,9} [0-9]{1,3}( (u8|u64|str|f32|bool|nonsense) [a-z]{0,3}(;(u16|str|x64) [a-z]){0,9})?",
            payload in prop::collection::vec(0u8..3, 0..64),
        ) {
            if let Ok(event) = Event::parse(line.as_bytes()) {
                prop_assert_eq!(Event::parse(event.line().as_bytes()), Ok(event));
            }
            if let Ok(event) = Event::parse(line.as_bytes())
                && let Some(len) = event.payload_len(&payload)
            {
                prop_assert!(len <= payload.len());
                // More bytes do not change where it ends.
                prop_assert_eq!(event.payload_len(&payload[..len]), Some(len));
            }
        }
    }
}
