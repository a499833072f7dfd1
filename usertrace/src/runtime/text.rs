//! Composes the payload of a metadata record: a line, and a NUL.

use usertrace_sys::word::encoded;

/// A growing line in a buffer of fixed size. After an overflow, [`finish`](Self::finish) returns
/// none.
#[derive(Debug)]
pub(super) struct Text<'a> {
    words: &'a mut [u64],
    len: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(words: &'a mut [u64]) -> Self {
        Self { words, len: 0 }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let at = self.len;
            self.len += 1;
            let Some(word) = self.words.get_mut(at / 8) else {
                return;
            };
            if at.is_multiple_of(8) {
                *word = 0;
            }
            *word |= u64::from(byte) << (at % 8 * 8);
        }
    }

    /// Appends any bytes as one word: encodes those other than letters, digits and `_ . -` as
    /// `%XX`, as in descriptions.
    pub(super) fn put_word(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let (encoded, len) = encoded(byte);
            self.put(&encoded[..len]);
        }
    }

    pub(super) fn put_number(&mut self, number: u16) {
        let mut digits = [0u8; 5];
        let (mut rest, mut first) = (number, digits.len());
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.put(&digits[first..]);
    }

    /// Appends the NUL and returns the payload; none if it is too long.
    pub(super) fn finish(mut self) -> Option<&'a [u64]> {
        self.put(b"\0");
        let words: &'a [u64] = self.words;
        words.get(..self.len.div_ceil(8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bytes_are_encoded() {
        let mut words = [0; 4];
        let mut text = Text::new(&mut words);
        text.put_word(b"a_Z.9-/ \xff\0");
        let bytes = text.finish().unwrap().iter();
        let bytes: Vec<u8> = bytes.flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes.trim_ascii_end(), b"a_Z.9-%2F%20%FF%00\0\0\0\0\0\0");
    }

    #[test]
    fn descriptions_are_lines_with_an_id() {
        let mut words = [u64::MAX; 5];
        let mut put = |id, description: &str| {
            let mut text = Text::new(&mut words);
            text.put_number(id);
            text.put(b" ");
            text.put(description.as_bytes());
            let bytes = text.finish()?.iter().flat_map(|word| word.to_le_bytes());
            Some(String::from_utf8(bytes.collect()).unwrap())
        };
        for (id, description, expected) in [
            (1, "a:b 6", "1 a:b 6\0"),
            (10, "a:bc 6 u8 n", "10 a:bc 6 u8 n\0\0"),
            (
                65519,
                "abcdefgh:ijklmnop 6 u64 abcdefghi",
                "65519 abcdefgh:ijklmnop 6 u64 abcdefghi\0",
            ),
        ] {
            assert_eq!(put(id, description).as_deref(), Some(expected));
        }
        assert_eq!(put(65519, "abcdefgh:ijklmnop 6 u64 abcdefghij"), None);
        assert_eq!(put(65519, "abcdefgh:ijklmnop 6 u64 abcdefghijklmnop"), None);
    }
}
