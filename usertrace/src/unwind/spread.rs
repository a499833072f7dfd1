//! Chooses places for what is remembered.

/// Spreads a word over the upper bits of the result, by Fibonacci hashing.
#[inline(always)]
pub(super) fn spread(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The upper bits of a word that was [spread], as a place among as many as they can tell.
#[inline(always)]
pub(super) fn place(spread: u64, bits: u32) -> usize {
    (spread >> (u64::BITS - bits)) as usize
}
