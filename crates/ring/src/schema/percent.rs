//! Percent encoding of a text as one word (RFC 3986): bytes other than letters, digits and `_ . -`
//! become `%` and two hexadecimal digits.

use usertrace_sys::word::{decoded, encoded};

/// Encodes a text.
pub(super) fn encode(text: &str) -> String {
    let mut word = String::new();
    for byte in text.bytes() {
        let (encoded, len) = encoded(byte);
        word.extend(encoded[..len].iter().copied().map(char::from));
    }
    word
}

/// Decodes a word. None if it is invalid, or does not decode to UTF-8.
pub(super) fn decode(word: &str) -> Option<String> {
    String::from_utf8(decode_bytes(word)?).ok()
}

/// Decodes a word to bytes. None if it is invalid.
pub(super) fn decode_bytes(word: &str) -> Option<Vec<u8>> {
    decoded(word).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_bytes_are_percent_encoded() {
        assert_eq!(encode("az_AZ.0-9"), "az_AZ.0-9");
        assert_eq!(encode("a b%ü\n"), "a%20b%25%C3%BC%0A");
        for word in ["%", "%2", "%2g", "%c3", "%+1", " ", "ü", "=", "%FF", "a%"] {
            assert_eq!(decode(word), None, "{word}");
        }
        assert_eq!(decode("%41"), Some("A".to_owned()));
    }

    proptest! {
        #[test]
        fn texts_round_trip(text in any::<String>()) {
            prop_assert_eq!(decode(&encode(&text)), Some(text));
        }

        /// Requirements: F4
        #[test]
        fn arbitrary_words_are_survived(word in "[%0-9A-Fa-f]{0,20}|\\PC{0,20}") {
            if let Some(text) = decode(&word) {
                prop_assert_eq!(decode(&encode(&text)), Some(text));
            }
        }
    }
}
