//! Any text as one word: bytes other than letters, digits and `_ . -` are `%` and two hexadecimal
//! digits (RFC 3986).

use usertrace_sys::word::{decoded, encoded};

/// The text as such a word.
pub(super) fn encode(text: &str) -> String {
    let mut word = String::new();
    for byte in text.bytes() {
        let (encoded, len) = encoded(byte);
        word.extend(encoded[..len].iter().copied().map(char::from));
    }
    word
}

/// The text of such a word. None: it is no such word, or of bytes that are not UTF-8.
pub(super) fn decode(word: &str) -> Option<String> {
    String::from_utf8(decode_bytes(word)?).ok()
}

/// The bytes of such a word. None: it is no such word.
pub(super) fn decode_bytes(word: &str) -> Option<Vec<u8>> {
    decoded(word).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_plain_is_a_number() {
        assert_eq!(encode("az_AZ.0-9"), "az_AZ.0-9");
        assert_eq!(encode("a b%ü\n"), "a%20b%25%C3%BC%0A");
        for word in ["%", "%2", "%2g", "%c3", "%+1", " ", "ü", "=", "%FF", "a%"] {
            assert_eq!(decode(word), None, "{word}");
        }
        assert_eq!(decode("%41"), Some("A".to_owned()));
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in any::<String>()) {
            prop_assert_eq!(decode(&encode(&text)), Some(text));
        }

        /// F4.
        #[test]
        fn no_word_is_too_strange(word in "[%0-9A-Fa-f]{0,20}|\\PC{0,20}") {
            if let Some(text) = decode(&word) {
                prop_assert_eq!(decode(&encode(&text)), Some(text));
            }
        }
    }
}
