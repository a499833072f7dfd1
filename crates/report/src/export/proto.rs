//! Writes Protocol Buffers: the part of the wire format that Perfetto traces need.

use crate::varint;

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
}

/// The start of a nested message.
#[derive(Debug)]
#[must_use]
pub(super) struct NestedMark(usize);

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LEN: u32 = 2;

impl Message {
    fn varint(&mut self, number: u64) {
        varint::put(&mut self.bytes, number);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// Writes a field of any varint type other than `sint`.
    pub(super) fn number(&mut self, field: u32, number: u64) {
        self.key(field, VARINT);
        self.varint(number);
    }

    /// Writes an `int32` or `int64`, sign-extended to 64 bits.
    pub(super) fn signed(&mut self, field: u32, number: i64) {
        self.number(field, number.cast_unsigned());
    }

    pub(super) fn fixed(&mut self, field: u32, number: u64) {
        self.key(field, FIXED64);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn double(&mut self, field: u32, number: f64) {
        self.fixed(field, number.to_bits());
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.key(field, LEN);
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Begins a nested message, which [`Message::end`] ends.
    pub(super) fn begin(&mut self, field: u32) -> NestedMark {
        self.key(field, LEN);
        // One byte for the length, which suffices for most.
        self.bytes.push(0);
        NestedMark(self.bytes.len())
    }

    /// Ends a nested message, or removes it if it is empty. Only for fields below 16, whose keys
    /// are one byte.
    pub(super) fn end_or_drop(&mut self, mark: NestedMark) {
        if self.bytes.len() > mark.0 {
            return self.end(mark);
        }
        self.bytes.truncate(mark.0 - 2);
    }

    pub(super) fn end(&mut self, mark: NestedMark) {
        let mut rest = self.bytes.len() - mark.0;
        let mut at = mark.0 - 1;
        while rest > 127 {
            self.bytes[at] = rest as u8 | 0x80;
            at += 1;
            self.bytes.insert(at, 0);
            rest >>= 7;
        }
        self.bytes[at] = rest as u8;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The examples of the encoding's documentation (`protobuf.dev/programming-guides/encoding`).
    #[test]
    fn fields_are_encoded_by_the_book() {
        let encoded = |write: fn(&mut Message)| {
            let mut message = Message::default();
            write(&mut message);
            message.bytes
        };
        assert_eq!(encoded(|m| m.number(1, 150)), [0x08, 0x96, 0x01]);
        let all_ones = [[0x10].as_slice(), &[0xff; 9], &[0x01]].concat();
        assert_eq!(encoded(|m| m.signed(2, -1)), all_ones);
        assert_eq!(
            encoded(|m| m.text(2, "testing")),
            [b"\x12\x07".as_slice(), b"testing"].concat()
        );
        let nested = encoded(|m| {
            let mark = m.begin(3);
            m.number(1, 150);
            m.end(mark);
        });
        assert_eq!(nested, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let double = encoded(|m| m.double(5, 1.0));
        assert_eq!(double, [0x29, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(encoded(|m| m.number(300, 0)), [0xe0, 0x12, 0]);
    }

    proptest! {
        /// Lengths with any number of bytes.
        #[test]
        fn messages_are_as_long_as_they_say(len in 0usize..40_000) {
            let text = "x".repeat(len);
            let mut message = Message::default();
            let mark = message.begin(1);
            let within = message.begin(2);
            message.bytes.extend_from_slice(text.as_bytes());
            message.end(within);
            message.end(mark);
            let (mut inner, mut outer) = (Message::default(), Message::default());
            inner.text(2, &text);
            outer.text(1, std::str::from_utf8(&inner.bytes).unwrap_or_default());
            // A length of more than 127 is not UTF-8.
            if len < 100 {
                prop_assert_eq!(&message.bytes, &outer.bytes);
            }
            prop_assert!(message.bytes.ends_with(&inner.bytes));
            prop_assert!(message.bytes.len() <= inner.bytes.len() + 4);
        }
    }
}
