//! Composes the description of an event, at compile time.

use usertrace_sys::uapi::LTT_META_MAX;
use usertrace_sys::word::encoded;

use super::Loglevel;
use super::number::Number;

/// The description of an event: a line as in the header `linux/ltt.h`, without the id.
#[derive(Debug)]
pub struct Description {
    /// The provider.
    pub provider: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The log level.
    pub loglevel: Loglevel,
    /// For a marker: a format string with the names of its fields in braces. Else empty.
    pub format: &'static str,
    /// Its fields.
    pub fields: &'static [DescribedField],
}

/// The description of a field.
#[derive(Debug)]
pub struct DescribedField {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// For an enumeration: the labels of its values.
    pub labels: &'static [Label],
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    name: &'static str,
    count: Count,
}

/// The number of elements of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    One,
    Fixed(usize),
    Any,
}

/// A label of a range of values of an enumeration.
#[derive(Debug)]
pub struct Label {
    /// The label's text, which may be any text.
    pub name: &'static str,
    /// The lowest of the values.
    pub first: i128,
    /// The highest.
    pub last: i128,
}

impl Kind {
    /// A NUL-terminated text.
    pub(super) const TEXT: Self = Self {
        name: "str",
        count: Count::One,
    };

    pub(super) const fn of<T: Number>(count: Count) -> Self {
        Self {
            name: T::NAME,
            count,
        }
    }

    /// The minimum and maximum of an integer type.
    const fn range(self) -> (i128, i128) {
        let name = self.name.as_bytes();
        assert!(
            matches!(name[0], b'u' | b's' | b'x') && name[1].is_ascii_digit(),
            "an enumeration is made of an integer"
        );
        let (mut bits, mut at) = (0, 1);
        while at < name.len() && name[at].is_ascii_digit() {
            bits = 10 * bits + (name[at] - b'0') as u32;
            at += 1;
        }
        match name[0] {
            b's' => (-1 << (bits - 1), (1 << (bits - 1)) - 1),
            _ => (0, (1 << bits) - 1),
        }
    }
}

impl Description {
    /// The length of the line.
    #[must_use]
    pub const fn line_len(&self) -> usize {
        let mut line = Line::<0>::new();
        line.describe(self);
        line.len
    }

    /// The line, whose length is [`line_len`](Self::line_len).
    ///
    /// # Panics
    /// If the description is invalid, at compile time.
    #[must_use]
    pub const fn line<const LEN: usize>(&self) -> [u8; LEN] {
        let mut line = Line::<LEN>::new();
        line.describe(self);
        check_format(self);
        line.bytes
    }
}

/// A line under construction. Bytes beyond its capacity are only counted.
struct Line<const LEN: usize> {
    bytes: [u8; LEN],
    len: usize,
}

impl<const LEN: usize> Line<LEN> {
    const fn new() -> Self {
        Self {
            bytes: [0; LEN],
            len: 0,
        }
    }

    const fn describe(&mut self, event: &Description) {
        self.put(event.provider);
        self.put(":");
        self.put(event.name);
        self.put(" ");
        self.put_number(event.loglevel as i128);
        let mut separator = " ";
        if !event.format.is_empty() {
            self.put(" fmt ");
            self.put_encoded(event.format);
            separator = ";";
        }
        let mut at = 0;
        while at < event.fields.len() {
            self.put(separator);
            self.put_field(&event.fields[at]);
            separator = ";";
            at += 1;
        }
        assert!(self.len < LTT_META_MAX, "the event has too many fields");
    }

    const fn put_field(&mut self, field: &DescribedField) {
        self.put(field.kind.name);
        match field.kind.count {
            Count::One => {}
            Count::Fixed(elements) => {
                assert!(
                    0 < elements && elements <= u16::MAX as usize,
                    "an array has 1 to 65535 elements"
                );
                self.put("[");
                self.put_number(elements as i128);
                self.put("]");
            }
            Count::Any => self.put("[]"),
        }
        if !field.labels.is_empty() {
            self.put_labels(field);
        }
        self.put(" ");
        self.put(plain_name(field.name));
    }

    const fn put_labels(&mut self, field: &DescribedField) {
        let (lowest, highest) = field.kind.range();
        let mut at = 0;
        while at < field.labels.len() {
            let label = &field.labels[at];
            assert!(label.first <= label.last, "a label's range is empty");
            assert!(
                lowest <= label.first && label.last <= highest,
                "a label's value is none of the enumeration's type"
            );
            self.put(if at == 0 { "{" } else { "," });
            self.put_encoded(label.name);
            self.put("=");
            self.put_number(label.first);
            if label.first != label.last {
                self.put("..");
                self.put_number(label.last);
            }
            at += 1;
        }
        self.put("}");
    }

    const fn put_byte(&mut self, byte: u8) {
        if self.len < LEN {
            self.bytes[self.len] = byte;
        }
        self.len += 1;
    }

    const fn put(&mut self, text: &str) {
        let (bytes, mut at) = (text.as_bytes(), 0);
        while at < bytes.len() {
            self.put_byte(bytes[at]);
            at += 1;
        }
    }

    /// Appends any text, encoded as one word without separators.
    const fn put_encoded(&mut self, text: &str) {
        let (bytes, mut at) = (text.as_bytes(), 0);
        while at < bytes.len() {
            let (encoded, len) = encoded(bytes[at]);
            let mut n = 0;
            while n < len {
                self.put_byte(encoded[n]);
                n += 1;
            }
            at += 1;
        }
    }

    const fn put_number(&mut self, number: i128) {
        if number < 0 {
            self.put_byte(b'-');
        }
        let number = number.unsigned_abs();
        let mut unit = 1;
        while number / unit >= 10 {
            unit *= 10;
        }
        while unit > 0 {
            self.put_byte(b'0' + (number / unit % 10) as u8);
            unit /= 10;
        }
    }
}

/// Strips the `r#` of a raw identifier.
#[must_use]
pub const fn strip_raw(identifier: &str) -> &str {
    match identifier.as_bytes() {
        [b'r', b'#', ..] => identifier.split_at(2).1,
        _ => identifier,
    }
}

/// A field's name in a description.
const fn plain_name(name: &str) -> &str {
    let plain = strip_raw(name);
    let (bytes, mut at) = (plain.as_bytes(), 0);
    while at < bytes.len() {
        assert!(
            bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_',
            "a field's name has letters, digits and _ only"
        );
        at += 1;
    }
    plain
}

/// Checks that braces in the format contain names of fields; a doubled brace stands for one.
const fn check_format(event: &Description) {
    let format = event.format.as_bytes();
    let mut at = 0;
    while at < format.len() {
        let doubled = at + 1 < format.len() && format[at] == format[at + 1];
        match format[at] {
            b'{' | b'}' if doubled => at += 2,
            b'{' => {
                let start = at + 1;
                while at < format.len() && format[at] != b'}' {
                    at += 1;
                }
                assert!(at < format.len(), "a brace in the format is not closed");
                assert!(
                    has_field(event, format, start, at),
                    "the format names a field that the event does not have"
                );
                at += 1;
            }
            byte => {
                assert!(byte != b'}', "a brace in the format was not opened");
                at += 1;
            }
        }
    }
}

/// True if the event has a field with the name at `start..end` of the format.
const fn has_field(event: &Description, format: &[u8], start: usize, end: usize) -> bool {
    let mut field = 0;
    while field < event.fields.len() {
        let name = plain_name(event.fields[field].name).as_bytes();
        let mut same = 0;
        while same < name.len() && start + same < end && name[same] == format[start + same] {
            same += 1;
        }
        if same == name.len() && start + same == end {
            return true;
        }
        field += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &Description) -> String {
        let line = event.line::<LTT_META_MAX>();
        String::from_utf8(line[..event.line_len()].to_vec()).unwrap()
    }

    const NONE: Description = Description {
        provider: "p",
        name: "n",
        loglevel: Loglevel::Debug,
        format: "",
        fields: &[],
    };

    /// Requirements: B1
    #[test]
    fn description_has_all_parts() {
        assert_eq!(line(&NONE), "p:n 14");
        let marker = Description {
            format: "50% {{done}}",
            ..NONE
        };
        assert_eq!(line(&marker), "p:n 14 fmt 50%25%20%7B%7Bdone%7D%7D");
        const EVENT: Description = Description {
            format: "{type}",
            fields: &[
                DescribedField {
                    name: "r#type",
                    kind: Kind::of::<i64>(Count::One),
                    labels: &[
                        Label {
                            name: "a b,ü=",
                            first: i64::MIN as i128,
                            last: -1,
                        },
                        Label {
                            name: "A-z_0.9",
                            first: 10,
                            last: 10,
                        },
                    ],
                },
                DescribedField {
                    name: "b",
                    kind: Kind::of::<f32>(Count::Fixed(65535)),
                    labels: &[],
                },
                DescribedField {
                    name: "c",
                    kind: Kind::of::<bool>(Count::Any),
                    labels: &[],
                },
            ],
            ..NONE
        };
        assert_eq!(
            line(&EVENT),
            "p:n 14 fmt %7Btype%7D;s64{a%20b%2C%C3%BC%3D=-9223372036854775808..-1,A-z_0.9=10} type;\
             f32[65535] b;bool[] c"
        );
    }

    #[test]
    fn integer_types_have_ranges() {
        let range = |kind: Kind| kind.range();
        assert_eq!(range(Kind::of::<u8>(Count::One)), (0, 255));
        assert_eq!(range(Kind::of::<i8>(Count::One)), (-128, 127));
        let (lowest, highest) = range(Kind::of::<super::super::number::Be<u64>>(Count::One));
        assert_eq!((lowest, highest), (0, u64::MAX.into()));
        assert_eq!(
            range(Kind::of::<i64>(Count::One)),
            (i64::MIN.into(), i64::MAX.into())
        );
    }
}
