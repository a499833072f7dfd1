//! Encodes any text as one word of a description: RFC 3986 without its reserved characters.

/// Encodes a byte: as itself if it is a letter, a digit or one of `_ . -`, else as `%XX`. Returns
/// the encoding and its length.
#[must_use]
pub const fn encoded(byte: u8) -> ([u8; 3], usize) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-') {
        return ([byte, 0, 0], 1);
    }
    let (high, low) = (DIGITS[byte as usize / 16], DIGITS[byte as usize % 16]);
    ([b'%', high, low], 3)
}

/// Decodes a word. Ends with `None` at the first invalid encoding.
pub fn decoded(word: &str) -> impl Iterator<Item = Option<u8>> {
    let mut rest = Some(word.as_bytes());
    std::iter::from_fn(move || {
        let (&first, behind) = rest?.split_first()?;
        let byte = if first == b'%' {
            behind
                .split_first_chunk()
                .and_then(|([high, low], behind)| Some((digit(*high)? << 4 | digit(*low)?, behind)))
        } else {
            (encoded(first).1 == 1).then_some((first, behind))
        };
        rest = byte.map(|(_, behind)| behind);
        Some(byte.map(|(byte, _)| byte))
    })
}

/// The value of a hexadecimal digit. Letters are upper case.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
