//! Descriptions of events.

use usertrace_sys::description;
use usertrace_sys::uapi::{LTT_ID_MAX, LTT_ID_MIN};

use super::error::DescriptionError;
use super::field::{Field, FieldError};
use super::{line, percent};

/// An event class, as the process described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id in this process: from [`LTT_ID_MIN`] to [`LTT_ID_MAX`].
    pub id: u16,
    /// `PROVIDER:NAME`: no white space, no control characters.
    pub name: String,
    /// Its log level.
    pub loglevel: u32,
    /// If it is a marker: its message, with field names in braces. Not empty.
    pub format: Option<String>,
    /// Its fields, in the order of the payload.
    pub fields: Vec<Field>,
}

impl Event {
    /// Parses a description, with or without the NUL at its end.
    ///
    /// # Errors
    /// If the line is not a description of an event.
    pub fn parse(line: &[u8]) -> Result<Self, DescriptionError> {
        Self::of_line(line::text(line)?)
    }

    /// Parses a line that was validated as text.
    pub(super) fn of_line(line: &str) -> Result<Self, DescriptionError> {
        let words = description::words(line);
        let id = description::decimal(words.id)
            .filter(|id| (u32::from(LTT_ID_MIN)..=u32::from(LTT_ID_MAX)).contains(id))
            .ok_or(DescriptionError::Id)? as u16;
        if !description::is_event_name(words.name) {
            return Err(DescriptionError::Name);
        }
        let loglevel = description::decimal(words.loglevel).ok_or(DescriptionError::Loglevel)?;
        let (format, fields) = words.fields.map_or(Ok((None, Vec::new())), fields)?;
        Ok(Self {
            id,
            name: words.name.to_owned(),
            loglevel,
            format,
            fields,
        })
    }

    /// Formats the description, see [`Event::parse`].
    #[must_use]
    pub fn line(&self) -> String {
        let format = self
            .format
            .iter()
            .map(|text| format!("fmt {}", percent::encode(text)));
        let fields: Vec<_> = format
            .chain(self.fields.iter().map(Field::to_string))
            .collect();
        let space = if fields.is_empty() { "" } else { " " };
        let (id, name, loglevel) = (self.id, &self.name, self.loglevel);
        format!("{id} {name} {loglevel}{space}{}", fields.join(";"))
    }

    /// Length of the payload at the start of `bytes`. None if the payload does not end there.
    #[must_use]
    pub fn payload_len(&self, bytes: &[u8]) -> Option<usize> {
        len_of(&self.fields, bytes)
    }

    /// Length of every payload, if it does not depend on the values.
    pub(super) fn fixed_len(&self) -> Option<usize> {
        fixed_len(&self.fields)
    }
}

/// Parses the fields of a description, and the format of a marker.
pub(super) fn fields(described: &str) -> Result<(Option<String>, Vec<Field>), DescriptionError> {
    let (mut format, mut fields) = (None, Vec::new());
    for (index, text) in described.split(';').enumerate() {
        let bad = |error| DescriptionError::Field {
            text: text.to_owned(),
            error,
        };
        match description::format(text, index).map_err(bad)? {
            Some(word) => {
                format = Some(percent::decode(word).ok_or_else(|| bad(FieldError::Format))?);
            }
            None => fields.push(Field::parse(text).map_err(bad)?),
        }
    }
    Ok((format, fields))
}

/// Length of these fields, if it does not depend on their values.
pub(super) fn fixed_len(fields: &[Field]) -> Option<usize> {
    let mut lens = fields.iter().map(|field| field.kind.fixed_len());
    lens.try_fold(0usize, |sum, len| sum.checked_add(len?))
}

/// Length of these fields at the start of `bytes`. None if they do not end there.
pub(super) fn len_of(fields: &[Field], bytes: &[u8]) -> Option<usize> {
    let mut len = 0usize;
    for field in fields {
        len = len.checked_add(field.kind.len(bytes.get(len..)?)?)?;
    }
    (len <= bytes.len()).then_some(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use usertrace_sys::uapi::LTT_META_MAX;

    use super::*;
    use crate::schema::{Element, FieldType, Integer, Label, Scalar};

    const HEX64: Scalar = Scalar::Integer(Integer {
        len: 8,
        signed: false,
        hex: true,
        big_endian: false,
    });

    const BE32: Integer = Integer {
        len: 4,
        signed: true,
        hex: false,
        big_endian: true,
    };

    #[test]
    fn descriptions_are_parsed() {
        let event =
            Event::parse(b"17 libc:malloc 13 u64 size;x64 address;str why;s8 t;f32 f;bool b\0");
        let event = event.unwrap();
        assert_eq!(
            (event.id, &event.name[..], event.loglevel),
            (17, "libc:malloc", 13)
        );
        let names: Vec<_> = event.fields.iter().map(|f| &f.name[..]).collect();
        assert_eq!(names, ["size", "address", "why", "t", "f", "b"]);
        assert_eq!(event.fields[1].kind, FieldType::Scalar(HEX64));
        assert_eq!(event.fields[2].kind, FieldType::Str);
        assert_eq!(event.fields[5].kind, FieldType::Scalar(Scalar::Bool));
        let line = "9 a:b 3 u8 a;u16 b;u32 c;u64 d;x8 e;x16 f;x32 g;x64 h;s8 i;s16 j;s32 k;s64 l;f32 m;f64 n;bool o;str p";
        assert_eq!(Event::parse(line.as_bytes()).unwrap().line(), line);
        let event = Event::parse(b"1 a:b 0").unwrap();
        assert_eq!((event.fields.len(), &event.line()[..]), (0, "1 a:b 0"));
        assert_eq!(event.format, None);
    }

    /// Requirements: B1
    #[test]
    fn arrays_sequences_enumerations_and_formats_are_parsed() {
        let line = "7 a:b 3 fmt %7Ba%7D%20%C3%BC;x64[3] a;c8[65535] b;s32be[] c;c8[] d;bool[1] e;\
                    s32be{a%2Cb=-2147483648..-1,a%2Cb=7} f;u64{=18446744073709551615} g";
        let event = Event::parse(line.as_bytes()).unwrap();
        assert_eq!(event.line(), line);
        assert_eq!(event.format.as_deref(), Some("{a} ü"));
        let label = |first, last| Label {
            name: "a,b".into(),
            first,
            last,
        };
        let kinds: Vec<_> = event.fields.into_iter().map(|field| field.kind).collect();
        assert_eq!(
            kinds[..6],
            [
                FieldType::Array(Element::Scalar(HEX64), 3),
                FieldType::Array(Element::Char, 65535),
                FieldType::Sequence(Element::Scalar(Scalar::Integer(BE32))),
                FieldType::Sequence(Element::Char),
                FieldType::Array(Element::Scalar(Scalar::Bool), 1),
                FieldType::Enum(BE32, vec![label(i32::MIN.into(), -1), label(7, 7)]),
            ]
        );
        let event = Event::parse(b"1 a:b 0 fmt x").unwrap();
        assert_eq!(event.format.as_deref(), Some("x"));
        assert_eq!(event.payload_len(b""), Some(0));
    }

    #[test]
    fn errors_name_the_invalid_field() {
        for (field, error) in [
            ("", FieldError::Name),
            ("u32", FieldError::Name),
            ("u32 ", FieldError::Name),
            ("u32 x y", FieldError::Name),
            ("u24 y", FieldError::Type),
            ("u8be y", FieldError::Type),
            ("f32be y", FieldError::Type),
            ("be y", FieldError::Type),
            ("ü8 y", FieldError::Type),
            ("c8 y", FieldError::Type),
            ("str[3] y", FieldError::Type),
            ("str[] y", FieldError::Type),
            ("u8[1][2] y", FieldError::Length),
            ("u8[1 y", FieldError::Type),
            ("u8] y", FieldError::Type),
            ("[] y", FieldError::Type),
            ("u8[0] y", FieldError::Length),
            ("u8[-1] y", FieldError::Length),
            ("u8[+1] y", FieldError::Length),
            ("u8[65536] y", FieldError::Length),
            (
                "u8[99999999999999999999999999999999999999999] y",
                FieldError::Length,
            ),
            ("f32{a=1} y", FieldError::NoInteger),
            ("c8{a=1} y", FieldError::NoInteger),
            ("u8{} y", FieldError::Label),
            ("u8{a=1,} y", FieldError::Label),
            ("u8{a} y", FieldError::Label),
            ("u8{a=} y", FieldError::Label),
            ("u8{a=256} y", FieldError::Label),
            ("u8{a=-1} y", FieldError::Label),
            ("u8{a=2..1} y", FieldError::Label),
            ("u8{a=1..} y", FieldError::Label),
            ("u8{a=+1} y", FieldError::Label),
            ("u8{a=1=1} y", FieldError::Label),
            ("u8{%FF=1} y", FieldError::Label),
            ("u8{a+b=1} y", FieldError::Label),
            ("s8{a=128} y", FieldError::Label),
            ("s8{a=-129} y", FieldError::Label),
            ("u8{a=1}[2] y", FieldError::Type),
            ("fmt x", FieldError::Format),
        ] {
            let line = format!("1 a:b 0 u32 x;{field}");
            let text = field.to_owned();
            let bad = DescriptionError::Field { text, error };
            assert_eq!(Event::parse(line.as_bytes()), Err(bad), "{line}");
        }
        for line in ["1 a:b 0 fmt ", "1 a:b 0 fmt %", "1 a:b 0 fmt a b"] {
            let error = Event::parse(line.as_bytes()).unwrap_err().to_string();
            assert!(error.ends_with("bad format"), "{error}");
        }
        let error = Event::parse(b"1 a:b 0 u32 x;u24 y").unwrap_err();
        assert_eq!(error.to_string(), "bad field \"u24 y\": unknown type");
    }

    #[test]
    fn invalid_event_descriptions_are_rejected() {
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
    fn payloads_end_with_their_fields() {
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
        let event = Event::parse(b"1 a:b 0 u8 x;u16be[2] a;s8{a=1} e").unwrap();
        assert_eq!(
            (event.fixed_len(), event.payload_len(&[0; 9])),
            (Some(6), Some(6))
        );
    }

    /// A sequence may claim to be longer than its payload.
    ///
    /// Requirements: F4
    #[test]
    fn sequences_end_in_their_payload() {
        let event = Event::parse(b"1 a:b 0 u8 x;u16be[] s;c8[] t").unwrap();
        assert_eq!(event.fixed_len(), None);
        assert_eq!(event.payload_len(b"x\x02\0\0\0abcd\x01\0\0\0t"), Some(14));
        assert_eq!(event.payload_len(b"x\0\0\0\0\0\0\0\0t"), Some(9));
        assert_eq!(event.payload_len(b"x\x02\0\0\0abcd\x02\0\0\0t"), None);
        assert_eq!(event.payload_len(b"x\x02\0\0\0abc"), None);
        assert_eq!(event.payload_len(b"x\0\0\0"), None);
        let wide = Event::parse(b"1 a:b 0 u64[] s;u64[] t").unwrap();
        assert_eq!(wide.payload_len(&[0xff; 64]), None);
    }

    proptest! {
        /// Requirements: F4
        #[test]
        fn arbitrary_lines_are_survived(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Event::parse(&line);
        }

        /// Programs and readers accept the same descriptions.
        #[test]
        fn programs_and_readers_agree(
            description in "[a-z:]{1,9} [0-9]{1,3}( (fmt|u8|u64be|str|f32|bool\\[2\\]|nonsense) [a-z%0-9]{0,3}\
                     (;(u16\\[\\]|str|c8\\[3?\\]|s16(be)?(\\{(%4[1-9]=-?[1-9](\\.\\.9)?,?){1,3}\\})?|fmt) [a-z]){0,9})?|\\PC{0,40}",
        ) {
            let line = format!("1 {description}");
            prop_assert_eq!(
                description::is_event(&description),
                Event::parse(line.as_bytes()).is_ok()
            );
        }

        /// Nearly valid lines, and arbitrary payloads.
        ///
        /// Requirements: F4
        #[test]
        fn arbitrary_payloads_are_survived(
            line in "[0-9]{1,6} [a-z:]{1,9} [0-9]{1,3}( (fmt|u8|u64be|str|f32|bool\\[2\\]|nonsense) [a-z%0-9]{0,3}\
                     (;(u16\\[\\]|str|c8\\[3?\\]|s16(be)?(\\{(%4[1-9]=-?[1-9](\\.\\.9)?,?){1,3}\\})?) [a-z]){0,9})?",
            payload in prop::collection::vec(0u8..3, 0..64),
        ) {
            if let Ok(event) = Event::parse(line.as_bytes()) {
                prop_assert_eq!(Event::parse(event.line().as_bytes()), Ok(event));
            }
            if let Ok(event) = Event::parse(line.as_bytes())
                && let Some(len) = event.payload_len(&payload)
            {
                prop_assert!(len <= payload.len());
                // Trailing bytes do not change the length.
                prop_assert_eq!(event.payload_len(&payload[..len]), Some(len));
            }
        }
    }
}
