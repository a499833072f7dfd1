//! Fields, and how a payload is made of them.

use std::mem::MaybeUninit;

use crate::writer::Cursor;

/// A value that a field of an event can have.
///
/// Fields are packed: in the order of their declaration, without padding, in the machine's byte order.
pub trait Field: Copy {
    /// How many bytes it takes; 0 if that depends on the value.
    const SIZE: usize;

    /// Its bytes, in the lower part of a word, if `SIZE` is not 0.
    fn bits(self) -> u64;

    /// How many bytes it takes.
    fn size(self) -> usize;

    /// How many bytes it takes at most, if that costs less to know.
    fn bound(self) -> usize;

    /// Appends it to a payload.
    fn append(self, payload: &mut impl Payload);
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
            fn size(self) -> usize {
                Self::SIZE
            }

            #[inline(always)]
            fn bound(self) -> usize {
                Self::SIZE
            }

            #[inline(always)]
            fn append(self, payload: &mut impl Payload) {
                payload.append(&self.bits().to_le_bytes()[..Self::SIZE]);
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

    #[inline(always)]
    fn size(self) -> usize {
        text_len(self.as_bytes()) + 1
    }

    #[inline(always)]
    fn bound(self) -> usize {
        str::len(self) + 1
    }

    #[inline(always)]
    fn append(self, payload: &mut impl Payload) {
        payload.append_text(self.as_bytes());
    }
}

/// Takes the bytes of a payload whose length depends on its values.
pub trait Payload {
    /// Appends some bytes.
    fn append(&mut self, bytes: &[u8]);

    /// Appends a text, up to and with its first NUL, which it is given if it has none.
    fn append_text(&mut self, text: &[u8]);
}

impl Payload for Cursor<'_> {
    fn append(&mut self, bytes: &[u8]) {
        self.append(bytes);
    }

    fn append_text(&mut self, text: &[u8]) {
        self.append(&text[..text_len(text)]);
        self.append(&[0]);
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

/// Memory for a [`Buffer`].
pub(super) type Room = MaybeUninit<[u64; Buffer::LEN / 8 + 2]>;

/// Where a payload is put together that is so short that it is copied into the ring.
///
/// The memory is not filled with zeros beforehand, as that would cost more than most payloads; and it is not part of
/// this, as the compiler would fill it then.
#[doc(hidden)]
#[derive(Debug)]
pub struct Buffer<'a> {
    room: &'a mut Room,
    /// So many bytes were appended.
    len: usize,
}

impl<'a> Buffer<'a> {
    /// How many bytes it can take. Longer payloads are put together in the ring: that costs some atomic instructions,
    /// which is less than to copy them once more.
    pub(super) const LEN: usize = 512;

    #[inline(always)]
    pub(super) fn new(room: &'a mut Room) -> Self {
        Self { room, len: 0 }
    }

    /// Stores a word behind what was appended.
    #[inline(always)]
    fn put(&mut self, word: u64) {
        debug_assert!(self.len <= Self::LEN);
        // SAFETY: `len` is not above `LEN`, and there are two words more.
        unsafe {
            let end = self.room.as_mut_ptr().cast::<u8>().add(self.len);
            end.cast::<u64>().write_unaligned(word);
        }
    }

    /// The payload, padded with zeros.
    #[inline(always)]
    pub(super) fn words(&mut self) -> &[u64] {
        self.put(0);
        // SAFETY: all words that have one of the first `len` bytes are initialised: by what was appended, or just now.
        unsafe { std::slice::from_raw_parts(self.room.as_ptr().cast(), self.len.div_ceil(8)) }
    }
}

impl Payload for Buffer<'_> {
    #[inline(always)]
    fn append(&mut self, bytes: &[u8]) {
        if bytes.len() > Self::LEN - self.len {
            return;
        }
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.put(u64::from_le_bytes(*word));
            self.len += 8;
        }
        if !rest.is_empty() {
            self.put(short_word(rest));
            self.len += rest.len();
        }
    }

    #[inline(always)]
    fn append_text(&mut self, text: &[u8]) {
        if text.len() >= Self::LEN - self.len {
            return;
        }
        let (words, rest) = text.as_chunks();
        for word in words {
            let word = u64::from_le_bytes(*word);
            self.put(word);
            if let Some(end) = first_zero(word) {
                self.len += end + 1;
                return;
            }
            self.len += 8;
        }
        let word = match text.last_chunk() {
            Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
            _ => short_word(rest),
        };
        self.put(word);
        // It is shorter than 8 bytes, so there is a zero.
        self.len += first_zero(word).unwrap_or(7) + 1;
    }
}

/// The first byte of a word in memory that is 0.
#[inline(always)]
fn first_zero(word: u64) -> Option<usize> {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // The lowest of these bits is that of the first such byte; above it they mean nothing.
    let zeros = word.wrapping_sub(LOW) & !word & HIGH;
    (zeros != 0).then(|| zeros.trailing_zeros() as usize / 8)
}

/// Less than 8 bytes, with zeros behind them.
#[inline(always)]
fn short_word(bytes: &[u8]) -> u64 {
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

/// Where a text ends: at its first NUL, if it has one.
#[inline]
fn text_len(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks();
    for (n, word) in words.iter().enumerate() {
        if let Some(end) = first_zero(u64::from_le_bytes(*word)) {
            return 8 * n + end;
        }
    }
    8 * words.len() + first_zero(short_word(rest)).unwrap_or(8).min(rest.len())
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
    fn buffers_have_the_same_bytes() {
        let mut room = Room::uninit();
        let (mut short, mut buffer) = (Short::<3>::default(), Buffer::new(&mut room));
        for n in 0..5u8 {
            short.push(i8::MIN + n.cast_signed());
        }
        short.push(f32::MAX);
        short.push(u64::MAX - 1);
        (0..5u8).for_each(|n| (i8::MIN + n.cast_signed()).append(&mut buffer));
        f32::MAX.append(&mut buffer);
        (u64::MAX - 1).append(&mut buffer);
        assert_eq!(buffer.words(), short.words());
    }

    #[test]
    fn strings_end_at_a_nul() {
        let mut room = Room::uninit();
        let mut buffer = Buffer::new(&mut room);
        "ab".append(&mut buffer);
        "c\0d".append(&mut buffer);
        "".append(&mut buffer);
        7u8.append(&mut buffer);
        assert_eq!(bytes(buffer.words()), b"ab\0c\0\0\x07\0");
        assert_eq!(Buffer::new(&mut Room::uninit()).words(), [0u64; 0]);
        for len in 0..40 {
            for nul in 0..=len {
                for after in ["", "x", "\0", "\u{1}\0\u{80}"] {
                    let mut text = "\u{1}".repeat(len);
                    text.insert(nul, '\0');
                    text.push_str(after);
                    assert_eq!(text_len(text.as_bytes()), nul);
                    assert_eq!(text.as_str().size(), nul + 1);
                    assert_eq!(text.as_str().bound(), text.len() + 1);
                    let mut room = Room::uninit();
                    let mut buffer = Buffer::new(&mut room);
                    3u8.append(&mut buffer);
                    text.as_str().append(&mut buffer);
                    4u8.append(&mut buffer);
                    let mut expected = vec![1; nul + 3];
                    (expected[0], expected[nul + 1], expected[nul + 2]) = (3, 0, 4);
                    expected.resize(expected.len().next_multiple_of(8), 0);
                    assert_eq!(bytes(buffer.words()), expected);
                }
                assert_eq!(text_len(&vec![0x80; len]), len);
                let (mut room, mut other_room) = (Room::uninit(), Room::uninit());
                let mut buffer = Buffer::new(&mut room);
                let mut by_bytes = Buffer::new(&mut other_room);
                let text = "\u{7f}".repeat(len);
                text.as_str().append(&mut buffer);
                by_bytes.append(text.as_bytes());
                by_bytes.append(&[0]);
                assert_eq!(buffer.words(), by_bytes.words());
                assert_eq!(bytes(buffer.words())[..len], *text.as_bytes());
            }
        }
    }

    #[test]
    fn a_buffer_takes_what_it_says() {
        for len in [Buffer::LEN - 1, Buffer::LEN - 4, Buffer::LEN - 9] {
            let text = "x".repeat(len);
            let mut room = Room::uninit();
            let mut buffer = Buffer::new(&mut room);
            text.as_str().append(&mut buffer);
            let mut expected = text.into_bytes();
            expected.resize((len + 1).next_multiple_of(8), 0);
            assert_eq!(bytes(buffer.words()), expected);
            // What is too much is left out as a whole.
            buffer.append(&[1; 512]);
            "x".repeat(Buffer::LEN).as_str().append(&mut buffer);
            assert_eq!(bytes(buffer.words()), expected);
        }
    }
}
