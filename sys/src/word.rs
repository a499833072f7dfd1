//! Any text as one word of a description: RFC 3986 without its reserved characters.

/// A byte of a word: itself, or `%XX` unless it is a letter, a digit or one of `_ . -`. How many bytes that are.
#[must_use]
pub const fn encoded(byte: u8) -> ([u8; 3], usize) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-') {
        return ([byte, 0, 0], 1);
    }
    let (high, low) = (DIGITS[byte as usize / 16], DIGITS[byte as usize % 16]);
    ([b'%', high, low], 3)
}
