//! Finds the end of NUL-terminated text, a word at a time.

/// The position of the first zero byte of a word in memory.
#[inline(always)]
fn first_zero(word: u64) -> Option<usize> {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // The lowest set bit marks the first zero byte; higher bits are undefined.
    let zeros = word.wrapping_sub(LOW) & !word & HIGH;
    (zeros != 0).then(|| zeros.trailing_zeros() as usize / 8)
}

/// Whether one of the first `len` bytes of a word in memory is zero, for at most 8.
#[inline(always)]
pub(super) fn has_zero(word: u64, len: usize) -> bool {
    // In two steps, as the shift may be by 64.
    let beyond = u64::MAX << (4 * len) << (4 * len);
    first_zero(word | beyond).is_some()
}

/// Whether one of 16 bytes is zero.
#[inline(always)]
pub(super) fn sixteen_have_zero(bytes: &[u8; 16]) -> bool {
    // Without a branch for each byte, so that the compiler compares all at once.
    bytes.iter().fold(false, |found, byte| found | (*byte == 0))
}

/// Loads less than 8 bytes, padded with zeros.
#[inline(always)]
pub(super) fn short_word(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << (8 * (bytes.len() - 4));
    }
    match *bytes {
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a] => u64::from(a),
        _ => 0,
    }
}

/// The length of a text up to its first NUL, if it has one.
#[inline]
pub(super) fn text_len(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks();
    for (n, word) in words.iter().enumerate() {
        if let Some(end) = first_zero(u64::from_le_bytes(*word)) {
            return 8 * n + end;
        }
    }
    8 * words.len() + first_zero(short_word(rest)).unwrap_or(8).min(rest.len())
}
