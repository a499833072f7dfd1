//! The layout of a kernel event, parsed from the file `format` of the event's directory in tracefs
//! (Linux, `Documentation/trace/events.rst`, "Event formats").

use usertrace_ring::schema::{Element, Event, Field, FieldType, Integer, Scalar};

/// The layout of a kernel event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// The description in traces. Its id is the kernel's, which each record starts with.
    pub(super) event: Event,
    /// Locations of the event's fields in records.
    locations: Vec<FieldLocation>,
}

/// The location of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FieldLocation {
    offset: usize,
    len: usize,
    storage: FieldStorage,
}

/// How a field is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldStorage {
    /// The field is the value.
    Inline,
    /// The field is a `u32` with offset and length of the value. With `relative`, the offset counts
    /// from the end of the field.
    Dynamic { relative: bool },
}

/// Why a format cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of its format is not understood: {text:?}")]
pub struct FormatError {
    line: usize,
    text: String,
}

/// Prefix of the fields that all records have. They become contexts, or are omitted.
const COMMON: &str = "common_";

impl Format {
    /// Parses the text of the file of an event in `system`.
    pub(super) fn parse(system: &str, text: &str) -> Result<Self, FormatError> {
        let (mut name, mut id) = (None, None);
        let (mut fields, mut locations) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let bad = || FormatError {
                line: index + 1,
                text: line.to_owned(),
            };
            if let Some(text) = line.strip_prefix("name: ") {
                name = Some(text.trim());
            } else if let Some(number) = line.strip_prefix("ID: ") {
                id = Some(number.trim().parse().map_err(|_| bad())?);
            } else if let Some(text) = line.strip_prefix("\tfield:") {
                let (field, location) = field(text).ok_or_else(bad)?;
                if !field.name.starts_with(COMMON) {
                    fields.push(field);
                    locations.push(location);
                }
            }
        }
        let missing = |what: &str| FormatError {
            line: text.lines().count(),
            text: format!("no {what}"),
        };
        let name = name.ok_or_else(|| missing("name"))?;
        let event = Event {
            id: id.ok_or_else(|| missing("ID"))?,
            name: format!("{system}:{name}"),
            // Kernel events have no level; this value means none.
            loglevel: u32::MAX,
            format: None,
            fields,
        };
        Ok(Self { event, locations })
    }

    /// Appends the payload of a record, in the layout of the event's description. Values that are
    /// missing in the record become 0, or empty.
    pub(super) fn payload(&self, record: &[u8], payload: &mut Vec<u8>) {
        for (location, field) in self.locations.iter().zip(&self.event.fields) {
            location.copy(&field.kind, record, payload);
        }
    }
}

impl FieldLocation {
    fn copy(self, kind: &FieldType, record: &[u8], payload: &mut Vec<u8>) {
        let bytes = match self.storage {
            FieldStorage::Inline => part(record, self.offset, self.len),
            FieldStorage::Dynamic { relative } => {
                let location = part(record, self.offset, self.len);
                let location = location
                    .first_chunk()
                    .map_or(0, |bytes| u32::from_ne_bytes(*bytes));
                let (start, len) = (location as usize & 0xffff, location as usize >> 16);
                let from = if relative { self.offset + self.len } else { 0 };
                part(record, from + start, len)
            }
        };
        match kind {
            FieldType::Str => {
                let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
                payload.extend_from_slice(text);
                payload.push(0);
            }
            FieldType::Sequence(element) => {
                let count = bytes.len() / element_len(*element);
                let whole = &bytes[..count * element_len(*element)];
                payload.extend_from_slice(&(count as u32).to_ne_bytes());
                payload.extend_from_slice(whole);
            }
            _ => {
                payload.extend_from_slice(bytes);
                payload.resize(payload.len() + self.len - bytes.len(), 0);
            }
        }
    }
}

/// The bytes at an offset, as far as they exist.
fn part(record: &[u8], offset: usize, len: usize) -> &[u8] {
    let rest = record.get(offset..).unwrap_or_default();
    &rest[..len.min(rest.len())]
}

/// Parses `TYPE NAME;\toffset:N;\tsize:N;\tsigned:N;`.
fn field(text: &str) -> Option<(Field, FieldLocation)> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let (mut offset, mut size, mut signed) = (None, None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => offset = number.parse::<usize>().ok(),
            Some(("size", number)) => size = number.parse::<usize>().ok(),
            Some(("signed", number)) => signed = number.parse::<u8>().ok(),
            _ => {}
        }
    }
    let (offset, len, signed) = (offset?, size?, signed? != 0);
    // The name is the last word, and an array length may follow it: `char comm[16]`. Or the type
    // has brackets: `u8[] buf`.
    let end = declaration.trim_end_matches(']');
    let (before, array) = match declaration.strip_suffix(']') {
        Some(_) => {
            let (before, count) = end.rsplit_once('[')?;
            (before, Some(count))
        }
        None => (declaration, None),
    };
    let (kind, name) = before.trim_end().rsplit_once([' ', '*'])?;
    let is_pointer = declaration.contains('*');
    let (storage, kind) = if let Some(kind) = kind.strip_prefix("__data_loc ") {
        (FieldStorage::Dynamic { relative: false }, kind)
    } else if let Some(kind) = kind.strip_prefix("__rel_loc ") {
        (FieldStorage::Dynamic { relative: true }, kind)
    } else {
        (FieldStorage::Inline, kind)
    };
    let element = kind.trim_end_matches("[]").trim();
    let kind = match storage {
        FieldStorage::Dynamic { .. } if len != 4 => return None,
        FieldStorage::Dynamic { .. } if is_text(element) => FieldType::Str,
        FieldStorage::Dynamic { .. } => FieldType::Sequence(Element::Scalar(element_type(element))),
        FieldStorage::Inline => value(element, len, signed, array, is_pointer)?,
    };
    let field = Field {
        name: name.to_owned(),
        kind,
    };
    Some((
        field,
        FieldLocation {
            offset,
            len,
            storage,
        },
    ))
}

/// The type of an inline value of `len` bytes.
fn value(
    kind: &str,
    len: usize,
    signed: bool,
    array: Option<&str>,
    is_pointer: bool,
) -> Option<FieldType> {
    let integer = |len: usize| {
        Scalar::Integer(Integer {
            len: len as u8,
            signed: signed && !is_pointer,
            hex: is_pointer,
            big_endian: false,
        })
    };
    let Some(count) = array else {
        return match len {
            1 | 2 | 4 | 8 => Some(FieldType::Scalar(integer(len))),
            // A structure.
            _ => Some(FieldType::Array(
                Element::Scalar(BYTE),
                u16::try_from(len).ok().filter(|&len| len != 0)?,
            )),
        };
    };
    // The count may also be the name of a constant, or an expression.
    let count = count.trim().parse().ok().filter(|&count: &usize| {
        count != 0 && len.is_multiple_of(count) && matches!(len / count, 1 | 2 | 4 | 8)
    });
    let (element, count) = match count {
        _ if is_text(kind) => (Element::Char, len),
        Some(count) => (Element::Scalar(integer(len / count)), count),
        None => (Element::Scalar(BYTE), len),
    };
    let count = u16::try_from(count).ok().filter(|&count| count != 0)?;
    Some(FieldType::Array(element, count))
}

const BYTE: Scalar = Scalar::Integer(Integer {
    len: 1,
    signed: false,
    hex: true,
    big_endian: false,
});

fn is_text(kind: &str) -> bool {
    matches!(kind, "char" | "const char")
}

/// The type of a sequence's elements. Only their type's name determines their size.
fn element_type(kind: &str) -> Scalar {
    let (len, signed) = match kind {
        "short" | "s16" | "__s16" | "int16_t" => (2, true),
        "unsigned short" | "u16" | "__u16" | "uint16_t" => (2, false),
        "int" | "s32" | "__s32" | "int32_t" | "pid_t" => (4, true),
        "unsigned int" | "unsigned" | "u32" | "__u32" | "uint32_t" => (4, false),
        "long" | "long long" | "s64" | "__s64" | "int64_t" => (8, true),
        "unsigned long" | "unsigned long long" | "u64" | "__u64" | "uint64_t" => (8, false),
        _ => return BYTE,
    };
    Scalar::Integer(Integer {
        len,
        signed,
        hex: false,
        big_endian: false,
    })
}

fn element_len(element: Element) -> usize {
    match element {
        Element::Scalar(Scalar::Integer(Integer { len, .. }) | Scalar::Float { len }) => len.into(),
        Element::Scalar(Scalar::Bool) | Element::Char => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// In the kernel's format, with a field of each kind.
    const TEXT: &str = "name: mixed
ID: 314
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] file;\toffset:28;\tsize:4;\tsigned:0;
\tfield:const void * call_site;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned long args[2];\toffset:40;\tsize:16;\tsigned:0;
\tfield:__rel_loc u32[] words;\toffset:56;\tsize:4;\tsigned:0;
\tfield:struct in6_addr addr;\toffset:60;\tsize:12;\tsigned:0;
\tfield:u8 mac[ETH_ALEN];\toffset:72;\tsize:6;\tsigned:0;
\tfield:bool on;\toffset:78;\tsize:1;\tsigned:0;

print fmt: \"comm=%s\", REC->comm
";

    #[test]
    fn fields_of_all_kinds_are_parsed() {
        let format = Format::parse("sys", TEXT).unwrap();
        assert_eq!(
            format.event.line(),
            "314 sys:mixed 4294967295 c8[16] comm;s32 pid;str file;x64 call_site;u64[2] args;u32[] words;x8[12] addr;\
             x8[6] mac;u8 on"
        );
    }

    #[test]
    fn a_record_becomes_a_payload_of_its_description() {
        let format = Format::parse("sys", TEXT).unwrap();
        let mut record = vec![0; 80];
        record[8..13].copy_from_slice(b"shell");
        record[24..28].copy_from_slice(&(-7i32).to_ne_bytes());
        record[28..32].copy_from_slice(&(6u32 << 16 | 80).to_ne_bytes());
        record[32..40].copy_from_slice(&0xffff_ffff_8000_1234u64.to_ne_bytes());
        record[40..48].copy_from_slice(&1u64.to_ne_bytes());
        record[48..56].copy_from_slice(&2u64.to_ne_bytes());
        // Relative to the end of the field: 60 + 26.
        record[56..60].copy_from_slice(&(8u32 << 16 | 26).to_ne_bytes());
        record[72..78].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        record[78] = 1;
        record.extend_from_slice(b"/etc/\0");
        record.extend_from_slice(&3u32.to_ne_bytes());
        record.extend_from_slice(&4u32.to_ne_bytes());
        let mut payload = Vec::new();
        format.payload(&record, &mut payload);
        let mut expected = b"shell\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(&(-7i32).to_ne_bytes());
        expected.extend_from_slice(b"/etc/\0");
        for word in [0xffff_ffff_8000_1234u64, 1, 2] {
            expected.extend_from_slice(&word.to_ne_bytes());
        }
        for word in [2u32, 3, 4] {
            expected.extend_from_slice(&word.to_ne_bytes());
        }
        expected.extend_from_slice(&[0; 12]);
        expected.extend_from_slice(&[1, 2, 3, 4, 5, 6, 1]);
        assert_eq!(payload, expected);
        assert_eq!(format.event.payload_len(&payload), Some(payload.len()));
    }

    #[test]
    fn invalid_format_error_shows_its_line() {
        for (text, line, what) in [
            ("ID: 5\n", 1, "no name"),
            ("name: x\n", 1, "no ID"),
            ("name: x\nID: y\n", 2, "ID: y"),
            ("name: x\nID: 5\n\tfield:int;\toffset:0;", 3, "field:int;"),
        ] {
            let error = Format::parse("s", text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.text.contains(what), "{error}");
        }
    }

    proptest! {
        /// Any truncated record, with any locations, becomes a payload that matches the
        /// description.
        #[test]
        fn any_record_becomes_a_whole_payload(record in prop::collection::vec(any::<u8>(), 0..200)) {
            let format = Format::parse("sys", TEXT).unwrap();
            let mut payload = Vec::new();
            format.payload(&record, &mut payload);
            prop_assert_eq!(format.event.payload_len(&payload), Some(payload.len()));
        }
    }
}
