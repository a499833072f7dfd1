//! Fields, and how a payload is made of them.

use std::mem::MaybeUninit;

use crate::writer::RECORD_MAX;

/// A value that a field of an event can have.
///
/// Fields are packed: in the order of their declaration, without padding, in the machine's byte order.
pub trait Field: Copy {
    /// How many bytes it takes; 0 if that depends on the value.
    const SIZE: usize;

    /// Its bytes, in the lower part of a word, if `SIZE` is not 0.
    fn bits(self) -> u64;

    /// Appends it to a payload.
    fn append(self, payload: &mut Long);
}

macro_rules! fixed {
    ($($type:ty: $bits:expr),* $(,)?) => {$(
        impl Field for $type {
            const SIZE: usize = size_of::<$type>();

            #[inline(always)]
            fn bits(self) -> u64 {
                let bits: fn($type) -> u64 = $bits;
                bits(self)
            }

            #[inline(always)]
            fn append(self, payload: &mut Long) {
                payload.push(&self.bits().to_le_bytes()[..Self::SIZE]);
            }
        }
    )*};
}

// Words are put together by shifts, so that the compiler can do it in registers; that is the order of the bytes in
// memory on a little-endian machine.
const _: () = assert!(cfg!(target_endian = "little"));

fixed! {
    u8: u64::from,
    u16: u64::from,
    u32: u64::from,
    u64: |value| value,
    i8: |value| value.cast_unsigned().into(),
    i16: |value| value.cast_unsigned().into(),
    i32: |value| value.cast_unsigned().into(),
    i64: |value| value.cast_unsigned(),
    f32: |value| value.to_bits().into(),
    f64: |value| value.to_bits(),
    bool: u64::from,
}

impl Field for &str {
    const SIZE: usize = 0;

    fn bits(self) -> u64 {
        0
    }

    fn append(self, payload: &mut Long) {
        let bytes = self.as_bytes();
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(bytes.len());
        payload.push(&bytes[..end]);
        payload.push(&[0]);
    }
}

/// A payload whose length is a constant. All of it ends up in registers or on the stack.
#[doc(hidden)]
#[derive(Debug)]
pub struct Short<const WORDS: usize> {
    words: [u64; WORDS],
    len: usize,
}

impl<const WORDS: usize> Default for Short<WORDS> {
    #[inline(always)]
    fn default() -> Self {
        Self {
            words: [0; WORDS],
            len: 0,
        }
    }
}

impl<const WORDS: usize> Short<WORDS> {
    /// Appends a field.
    #[inline(always)]
    pub fn push<F: Field>(&mut self, field: F) {
        let (word, shift) = (self.len / 8, self.len % 8 * 8);
        let bits = field.bits();
        if let Some(low) = self.words.get_mut(word) {
            *low |= bits << shift;
        }
        if shift + 8 * F::SIZE > 64
            && let Some(high) = self.words.get_mut(word + 1)
        {
            *high |= bits >> (64 - shift);
        }
        self.len += F::SIZE;
    }

    /// The payload, padded with zeros.
    #[inline(always)]
    #[must_use]
    pub fn words(self) -> [u64; WORDS] {
        self.words
    }
}

const LONG_WORDS: usize = (RECORD_MAX - 8) / 8;

/// A payload whose length depends on its values.
#[doc(hidden)]
#[derive(Debug)]
pub struct Long {
    /// The first `len` bytes are initialised.
    words: [MaybeUninit<u64>; LONG_WORDS],
    len: usize,
    too_long: bool,
}

impl Default for Long {
    #[inline]
    fn default() -> Self {
        Self {
            words: [const { MaybeUninit::uninit() }; LONG_WORDS],
            len: 0,
            too_long: false,
        }
    }
}

impl Long {
    fn push(&mut self, bytes: &[u8]) {
        if bytes.len() > size_of_val(&self.words) - self.len {
            self.too_long = true;
            return;
        }
        // SAFETY: there is room for the bytes behind the first `len`.
        unsafe {
            let end = self.words.as_mut_ptr().cast::<u8>().add(self.len);
            end.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.len += bytes.len();
    }

    /// The payload, padded with zeros, or nothing if it is longer than a record may be.
    pub(super) fn words(&mut self) -> Option<&[u64]> {
        if self.too_long {
            return None;
        }
        let words = self.len.div_ceil(8);
        let padding = words * 8 - self.len;
        self.push(&[0; 8][..padding]);
        // SAFETY: the first `len` bytes, now those of whole words, are initialised.
        Some(unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u64>(), words) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn short_payloads_are_packed() {
        let mut short = Short::<4>::default();
        short.push(0x11u8);
        short.push(-2i16);
        short.push(0x2233_4455u32);
        short.push(0x6677_8899_aabb_ccddu64);
        short.push(true);
        short.push(1.5f64);
        let mut expected = vec![0x11, 0xfe, 0xff, 0x55, 0x44, 0x33, 0x22];
        expected.extend(0x6677_8899_aabb_ccddu64.to_le_bytes());
        expected.push(1);
        expected.extend(1.5f64.to_le_bytes());
        expected.resize(32, 0);
        assert_eq!(bytes(&short.words()), expected);
    }

    #[test]
    fn long_payloads_are_the_same_bytes() {
        let (mut short, mut long) = (Short::<3>::default(), Long::default());
        for n in 0..5u8 {
            short.push(i8::MIN + n.cast_signed());
            long_push(&mut long, i8::MIN + n.cast_signed());
        }
        short.push(f32::MAX);
        long_push(&mut long, f32::MAX);
        short.push(u64::MAX - 1);
        long_push(&mut long, u64::MAX - 1);
        assert_eq!(long.words().unwrap(), short.words());
    }

    fn long_push(long: &mut Long, field: impl Field) {
        field.append(long);
    }

    #[test]
    fn strings_end_at_a_nul() {
        let mut long = Long::default();
        long_push(&mut long, "ab");
        long_push(&mut long, "c\0d");
        long_push(&mut long, "");
        long_push(&mut long, 7u8);
        assert_eq!(bytes(long.words().unwrap()), b"ab\0c\0\0\x07\0");
        let mut empty = Long::default();
        assert_eq!(empty.words().unwrap(), [0u64; 0]);
    }

    #[test]
    fn what_is_too_long_is_refused_as_a_whole() {
        let text = "x".repeat(RECORD_MAX - 8);
        let mut long = Long::default();
        long_push(&mut long, &text[1..]);
        assert_eq!(long.words().map(<[u64]>::len), Some(LONG_WORDS));
        let mut long = Long::default();
        long_push(&mut long, text.as_str());
        long_push(&mut long, 1u8);
        assert_eq!(long.words(), None);
    }
}
