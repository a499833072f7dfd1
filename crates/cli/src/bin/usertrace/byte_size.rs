//! Sizes on the command line: a number of bytes, or of larger units.

/// Why a text is not a size.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SizeError {
    NotANumber,
    TooLarge,
}

/// Parses a number of bytes. The suffixes k, M and G stand for 2^10, 2^20 and 2^30 bytes.
pub(crate) fn parse(text: &str) -> Result<u64, SizeError> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| SizeError::NotANumber)?;
    number.checked_mul(factor).ok_or(SizeError::TooLarge)
}
