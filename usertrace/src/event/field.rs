//! Fields of events, and the buffers in which payloads are composed of them.

use std::mem::MaybeUninit;

use super::describe::{Count, Kind};
use super::number::Number;
use super::text::{has_zero, short_word, sixteen_have_zero, text_len};
use crate::writer::Cursor;

/// The type of a field of an event.
///
/// Fields are packed in the order of their declaration, without padding, and in native byte order
/// unless the type says otherwise.
#[diagnostic::on_unimplemented(message = "`{Self}` cannot be a field of an event")]
pub trait Field {
    /// The type of the argument of an event.
    type Argument<'a>: Copy;

    /// The type in a description.
    const KIND: Kind;

    /// The size in bytes; 0 if it depends on the argument, or may be more than a word.
    const SIZE: usize;

    /// The bytes of an argument, in the low part of a word, if `SIZE` is not 0.
    fn bits(argument: Self::Argument<'_>) -> u64;

    /// The size of an argument, in bytes.
    fn size(argument: Self::Argument<'_>) -> usize;

    /// An upper bound of the size, if that is cheaper to compute.
    #[inline(always)]
    fn bound(argument: Self::Argument<'_>) -> usize {
        Self::size(argument)
    }

    /// Appends the argument to a payload.
    fn append(argument: Self::Argument<'_>, payload: &mut impl Payload);
}

impl<T: Number> Field for T {
    type Argument<'a> = T::Value;

    const KIND: Kind = Kind::of::<T>(Count::One);

    const SIZE: usize = size_of::<T::Value>();

    #[inline(always)]
    fn bits(argument: T::Value) -> u64 {
        T::bits(argument)
    }

    #[inline(always)]
    fn size(_: T::Value) -> usize {
        Self::SIZE
    }

    #[inline(always)]
    fn append(argument: T::Value, payload: &mut impl Payload) {
        payload.append(&T::bits(argument).to_le_bytes()[..Self::SIZE]);
    }
}

impl Field for str {
    type Argument<'a> = &'a str;

    const KIND: Kind = Kind::TEXT;

    const SIZE: usize = 0;

    fn bits(_: &str) -> u64 {
        0
    }

    #[inline(always)]
    fn size(argument: &str) -> usize {
        text_len(argument.as_bytes()) + 1
    }

    #[inline(always)]
    fn bound(argument: &str) -> usize {
        argument.len() + 1
    }

    #[inline(always)]
    fn append(argument: &str, payload: &mut impl Payload) {
        payload.append_text(argument.as_bytes());
    }
}

/// An array, encoded as its elements.
impl<T: Number, const N: usize> Field for [T; N] {
    type Argument<'a> = &'a [T::Value; N];

    const KIND: Kind = Kind::of::<T>(Count::Fixed(N));

    const SIZE: usize = 0;

    fn bits(_: &[T::Value; N]) -> u64 {
        0
    }

    #[inline(always)]
    fn size(argument: &[T::Value; N]) -> usize {
        size_of_val(argument)
    }

    #[inline(always)]
    fn append(argument: &[T::Value; N], payload: &mut impl Payload) {
        append_all::<T>(argument, payload);
    }
}

/// The type of the length of a sequence in a payload.
type Len = u32;

/// A sequence, encoded as its length and its elements.
impl<T: Number> Field for [T] {
    type Argument<'a> = &'a [T::Value];

    const KIND: Kind = Kind::of::<T>(Count::Any);

    const SIZE: usize = 0;

    fn bits(_: &[T::Value]) -> u64 {
        0
    }

    #[inline(always)]
    fn size(argument: &[T::Value]) -> usize {
        size_of::<Len>() + size_of_val(argument)
    }

    #[inline(always)]
    fn append(argument: &[T::Value], payload: &mut impl Payload) {
        // A length that does not fit means more than any sub-buffer holds; such an event is
        // dropped.
        payload.append(&(argument.len() as Len).to_le_bytes());
        append_all::<T>(argument, payload);
    }
}

#[inline(always)]
fn append_all<T: Number>(values: &[T::Value], payload: &mut impl Payload) {
    if T::PLAIN {
        // SAFETY: the bytes of `values`, all of which are initialised: the contract of `Number` for
        // plain types.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        payload.append(bytes);
    } else {
        for value in values {
            <T as Field>::append(*value, payload);
        }
    }
}

/// A sink for the bytes of a payload of variable length.
pub trait Payload {
    /// Appends bytes.
    fn append(&mut self, bytes: &[u8]);

    /// Appends a text up to its first NUL, and a NUL.
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

/// Words of a payload that the function of an event gets as arguments, at most. So many arguments
/// come in registers; further ones come in memory, and would be copied from there to the payload.
#[doc(hidden)]
pub const MOST_WORDS_BY_ARGUMENTS: usize = 6;

/// A payload of constant length, which the compiler keeps in registers or on the stack.
#[doc(hidden)]
#[derive(Debug)]
pub struct InlinePayload<const WORDS: usize> {
    words: [u64; WORDS],
    len: usize,
}

impl<const WORDS: usize> Default for InlinePayload<WORDS> {
    #[inline(always)]
    fn default() -> Self {
        Self {
            words: [0; WORDS],
            len: 0,
        }
    }
}

impl<const WORDS: usize> InlinePayload<WORDS> {
    /// Appends a field.
    #[inline(always)]
    pub fn push<F: Field + ?Sized>(&mut self, argument: F::Argument<'_>) {
        let (word, shift) = (self.len / 8, self.len % 8 * 8);
        let bits = F::bits(argument);
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

/// Words of the memory for a [`Buffer`].
const WORDS: usize = words_for(512);

/// Words of the memory for a buffer of so many bytes: whole words are stored.
pub(crate) const fn words_for(len: usize) -> usize {
    len.div_ceil(8)
}

/// Memory for a [`Buffer`].
#[doc(hidden)]
pub type Scratch = MaybeUninit<[u64; WORDS]>;

/// A buffer for payloads that are short enough to be copied into the ring. Longer payloads are
/// composed in the ring. That costs a few atomic instructions, which is less than another copy.
#[doc(hidden)]
pub type Buffer<'a> = SizedBuffer<'a, WORDS>;

/// A buffer in memory of so many words, for a payload.
///
/// The memory is not zeroed beforehand, because that would cost more than most payloads. It is not
/// part of this type, because the compiler would then initialise it.
///
/// Each word is stored once, as a whole, or together with the next one. A payload of overlapping
/// stores could not be loaded again from the processor's store buffer, and its copy would wait
/// until the stores are in the cache.
#[doc(hidden)]
#[derive(Debug)]
pub struct SizedBuffer<'a, const WORDS: usize> {
    scratch: &'a mut MaybeUninit<[u64; WORDS]>,
    /// Number of bytes that were appended.
    len: usize,
    /// The last `len % 8` of them, which are not in memory yet, and zeros.
    pending: u64,
}

/// How much a [`SizedBuffer`] had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferMark {
    len: usize,
    pending: u64,
}

impl<'a, const WORDS: usize> SizedBuffer<'a, WORDS> {
    /// The capacity in bytes.
    pub(crate) const LEN: usize = 8 * WORDS;

    /// Creates an empty buffer.
    #[inline(always)]
    #[must_use]
    pub fn new(scratch: &'a mut MaybeUninit<[u64; WORDS]>) -> Self {
        Self {
            scratch,
            len: 0,
            pending: 0,
        }
    }

    /// True if `len` more bytes fit.
    #[inline(always)]
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        len <= Self::LEN - self.len
    }

    /// Appends zeros up to a multiple of 8.
    #[inline(always)]
    pub(crate) fn pad(&mut self) {
        self.store_pending();
        self.len = self.len.next_multiple_of(8);
        self.pending = 0;
    }

    /// Appends whole words behind whole words. False if a part of one precedes them, or they do not
    /// fit: then nothing is appended.
    #[inline(always)]
    pub(crate) fn append_words(&mut self, words: &[u64]) -> bool {
        let len = size_of_val(words);
        if !self.len.is_multiple_of(8) || !self.has_room(len) {
            return false;
        }
        // SAFETY: the scratch memory has `len` more bytes from this word on, as just checked; the
        // slice is not a part of it, as it is borrowed mutably. The places are inside of both.
        unsafe {
            let to = self.scratch.as_mut_ptr().cast::<u64>().add(self.len / 8);
            // Volatile, so that each load is of one word: the caller may just have stored it, and
            // the store buffer cannot answer a wider load.
            let copy = |at: usize| to.add(at).write(words.as_ptr().add(at).read_volatile());
            match words.len() {
                // Apart: a loop of unknown length is unrolled, which takes longer for a few.
                1 => copy(0),
                2 => (0..2).for_each(copy),
                len => (0..len).for_each(copy),
            }
        }
        self.len += len;
        true
    }

    /// Appends the number of each item, of a word each. False if one has none, or they do not fit:
    /// then nothing is appended.
    #[inline(always)]
    pub(crate) fn append_numbers<T>(
        &mut self,
        items: &[T],
        number: impl Fn(&T) -> Option<u64>,
    ) -> bool {
        if items.len() > (Self::LEN - self.len) / 8 {
            return false;
        }
        // SAFETY: as just checked.
        let pending = unsafe {
            match self.len % 8 {
                // Behind a number of 4 bytes. Apart, so that the shifts are constant.
                4 => self.store_numbers(4, items, number),
                at => self.store_numbers(at, items, number),
            }
        };
        let Some(pending) = pending else { return false };
        self.len += 8 * items.len();
        self.pending = pending;
        true
    }

    /// Stores numbers behind the `at` pending bytes. Returns the bytes that are pending then.
    ///
    /// # Safety
    /// They must fit.
    #[inline(always)]
    unsafe fn store_numbers<T>(
        &mut self,
        at: usize,
        items: &[T],
        number: impl Fn(&T) -> Option<u64>,
    ) -> Option<u64> {
        let (first, mut pending) = (self.len / 8, self.pending);
        for (index, item) in items.iter().enumerate() {
            let number = number(item)?;
            let word = pending | number << (8 * at);
            // SAFETY: the numbers fit, by this function's contract.
            unsafe { self.store(first + index, word.to_le_bytes()) };
            pending = number >> 1 >> (63 - 8 * at);
        }
        Some(pending)
    }

    /// What [`back_to`](Self::back_to) needs to drop all that is appended from now on.
    #[inline(always)]
    pub(crate) fn mark(&self) -> BufferMark {
        BufferMark {
            len: self.len,
            pending: self.pending,
        }
    }

    /// Drops what was appended since the mark, which must be of this buffer.
    #[inline(always)]
    pub(crate) fn back_to(&mut self, mark: BufferMark) {
        let BufferMark { len, pending } = mark;
        if len <= self.len {
            (self.len, self.pending) = (len, pending);
        }
    }

    /// The bytes that were appended.
    #[must_use]
    pub fn bytes(&mut self) -> &[u8] {
        let len = self.len;
        // SAFETY: the words have that many bytes, or up to 7 more.
        unsafe { std::slice::from_raw_parts(self.words().as_ptr().cast(), len) }
    }

    /// Stores words of the payload.
    ///
    /// # Safety
    /// `bytes` must be whole words, and the memory must have them from the one at `index` on.
    #[inline(always)]
    unsafe fn store<const LEN: usize>(&mut self, index: usize, bytes: [u8; LEN]) {
        debug_assert!(8 * index + LEN <= Self::LEN);
        let words = self.scratch.as_mut_ptr().cast::<u64>();
        // SAFETY: the scratch memory has these words, as this function's caller promises. Bytes
        // need no alignment.
        unsafe { words.add(index).cast::<[u8; LEN]>().write(bytes) };
    }

    #[inline(always)]
    fn store_pending(&mut self) {
        if !self.len.is_multiple_of(8) {
            // SAFETY: `len` is at most `LEN`, a multiple of 8, and is not a multiple of 8.
            unsafe { self.store(self.len / 8, self.pending.to_le_bytes()) };
        }
    }

    /// Appends at most 8 bytes of a word whose other bytes are zeros.
    ///
    /// # Safety
    /// They must fit.
    #[inline(always)]
    unsafe fn append_short(&mut self, word: u64, len: usize) {
        let at = self.len % 8;
        self.pending |= word << (8 * at);
        if at + len >= 8 {
            // SAFETY: at least one byte fits, as this function's caller promises.
            unsafe { self.store(self.len / 8, self.pending.to_le_bytes()) };
            self.pending = word >> 1 >> (63 - 8 * at);
        }
        self.len += len;
    }

    /// Appends bytes, or a text and a NUL. False for a text that has a NUL: then nothing is
    /// appended.
    ///
    /// The bytes are loaded as the words of the payload that they are in: only those that complete
    /// the first word are shifted.
    ///
    /// # Safety
    /// They must fit.
    #[inline(always)]
    unsafe fn append_all<const IS_TEXT: bool>(&mut self, bytes: &[u8]) -> bool {
        let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else {
            let word = short_word(bytes);
            if IS_TEXT && has_zero(word, bytes.len()) {
                return false;
            }
            // SAFETY: they fit, as this function's caller promises.
            unsafe { self.append_short(word, bytes.len() + usize::from(IS_TEXT)) };
            return true;
        };
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        // One branch for both.
        if IS_TEXT && has_zero(first, 8) | has_zero(last, 8) {
            return false;
        }
        let at = self.len % 8;
        let mut index = self.len / 8;
        // SAFETY: at least one byte fits.
        unsafe { self.store(index, (self.pending | first << (8 * at)).to_le_bytes()) };
        index += 1;
        let mut rest = &bytes[8 - at..];
        while let Some((words, after)) = rest.split_first_chunk() {
            if IS_TEXT && sixteen_have_zero(words) {
                return false;
            }
            // SAFETY: the words are all of these bytes, which fit.
            unsafe { self.store(index, *words) };
            (index, rest) = (index + 2, after);
        }
        if let Some((word, after)) = rest.split_first_chunk() {
            if IS_TEXT && has_zero(u64::from_le_bytes(*word), 8) {
                return false;
            }
            // SAFETY: likewise.
            unsafe { self.store(index, *word) };
            (index, rest) = (index + 1, after);
        }
        // In two steps, as the shift may be by 64.
        self.pending = last >> 1 >> (63 - 8 * rest.len());
        self.len += bytes.len() + usize::from(IS_TEXT);
        if IS_TEXT && rest.len() == 7 {
            // SAFETY: the word ends with the NUL, which fits.
            unsafe { self.store(index, self.pending.to_le_bytes()) };
            self.pending = 0;
        }
        true
    }

    /// The payload, padded with zeros.
    #[inline(always)]
    pub fn words(&mut self) -> &[u64] {
        self.store_pending();
        // SAFETY: all words that contain one of the first `len` bytes are initialised: by `store`,
        // when the last byte of the word was appended, or above.
        unsafe { std::slice::from_raw_parts(self.scratch.as_ptr().cast(), self.len.div_ceil(8)) }
    }
}

impl<const WORDS: usize> Payload for SizedBuffer<'_, WORDS> {
    #[inline(always)]
    fn append(&mut self, bytes: &[u8]) {
        if bytes.len() > Self::LEN - self.len {
            return;
        }
        // SAFETY: they fit, as just checked.
        unsafe { self.append_all::<false>(bytes) };
    }

    #[inline(always)]
    fn append_text(&mut self, text: &[u8]) {
        if text.len() >= Self::LEN - self.len {
            return;
        }
        // SAFETY: the text and a NUL fit, as just checked.
        if !unsafe { self.append_all::<true>(text) } {
            let (scratch, len, pending) = (&mut *self.scratch, self.len, self.pending);
            (self.len, self.pending) = append_before_nul(scratch, len, pending, text);
        }
    }
}

/// Appends the part of a text before its first NUL, and a NUL. Few texts have one.
///
/// Gets and returns the variables of a buffer, which so are in registers where none has.
#[cold]
#[inline(never)]
fn append_before_nul<const WORDS: usize>(
    scratch: &mut MaybeUninit<[u64; WORDS]>,
    len: usize,
    pending: u64,
    text: &[u8],
) -> (usize, u64) {
    let mut buffer = SizedBuffer {
        scratch,
        len,
        pending,
    };
    buffer.append(&text[..text_len(text)]);
    buffer.append(&[0]);
    (buffer.len, buffer.pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn short_payloads_are_packed() {
        let mut short = InlinePayload::<4>::default();
        short.push::<u8>(0x11);
        short.push::<i16>(-2);
        short.push::<u32>(0x2233_4455);
        short.push::<u64>(0x6677_8899_aabb_ccdd);
        short.push::<bool>(true);
        short.push::<f64>(1.5);
        let mut expected = vec![0x11, 0xfe, 0xff, 0x55, 0x44, 0x33, 0x22];
        expected.extend(0x6677_8899_aabb_ccddu64.to_le_bytes());
        expected.push(1);
        expected.extend(1.5f64.to_le_bytes());
        expected.resize(32, 0);
        assert_eq!(bytes(&short.words()), expected);
    }

    #[test]
    fn buffers_have_the_same_bytes() {
        let mut scratch = Scratch::uninit();
        let (mut short, mut buffer) = (InlinePayload::<3>::default(), Buffer::new(&mut scratch));
        for n in 0..5u8 {
            short.push::<i8>(i8::MIN + n.cast_signed());
        }
        short.push::<f32>(f32::MAX);
        short.push::<u64>(u64::MAX - 1);
        (0..5u8).for_each(|n| i8::append(i8::MIN + n.cast_signed(), &mut buffer));
        f32::append(f32::MAX, &mut buffer);
        u64::append(u64::MAX - 1, &mut buffer);
        assert_eq!(buffer.words(), short.words());
    }

    #[test]
    fn numbers_are_appended_all_or_not_at_all() {
        let number = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for before in 0..9u8 {
            let mut scratch = Scratch::uninit();
            let mut buffer = Buffer::new(&mut scratch);
            (0..before).for_each(|n| u8::append(n, &mut buffer));
            let expected: Vec<u8> = (0..before)
                .chain((1..=5).flat_map(|n| number(n).to_le_bytes()))
                .chain([77])
                .collect();
            let up_to = |most: u64, buffer: &mut Buffer<'_>| {
                buffer.append_numbers(&[1, 2, 3, 4, 5], |&n| (n <= most).then(|| number(n)))
            };
            assert!(!up_to(4, &mut buffer));
            let mark = buffer.mark();
            u32::append(5, &mut buffer);
            assert!(up_to(5, &mut buffer));
            buffer.back_to(mark);
            assert!(up_to(5, &mut buffer));
            u8::append(77, &mut buffer);
            assert_eq!(buffer.bytes(), expected);
            let room = (Buffer::LEN - expected.len()) / 8;
            let ones = vec![1; room + 1];
            assert!(!buffer.append_numbers(&ones, |&one| Some(one)));
            assert_eq!(buffer.bytes(), expected);
            assert!(buffer.append_numbers(&ones[1..], |&one| Some(one)));
        }
    }

    #[test]
    fn strings_end_at_a_nul() {
        let mut scratch = Scratch::uninit();
        let mut buffer = Buffer::new(&mut scratch);
        str::append("ab", &mut buffer);
        str::append("c\0d", &mut buffer);
        str::append("", &mut buffer);
        u8::append(7, &mut buffer);
        assert_eq!(bytes(buffer.words()), b"ab\0c\0\0\x07\0");
        assert_eq!(Buffer::new(&mut Scratch::uninit()).words(), [0u64; 0]);
        for len in 0..40 {
            for nul in 0..=len {
                for after in ["", "x", "\0", "\u{1}\0\u{80}"] {
                    let mut text = "\u{1}".repeat(len);
                    text.insert(nul, '\0');
                    text.push_str(after);
                    assert_eq!(text_len(text.as_bytes()), nul);
                    assert_eq!(str::size(&text), nul + 1);
                    assert_eq!(str::bound(&text), text.len() + 1);
                    let mut scratch = Scratch::uninit();
                    let mut buffer = Buffer::new(&mut scratch);
                    u8::append(3, &mut buffer);
                    str::append(&text, &mut buffer);
                    u8::append(4, &mut buffer);
                    let mut expected = vec![1; nul + 3];
                    (expected[0], expected[nul + 1], expected[nul + 2]) = (3, 0, 4);
                    expected.resize(expected.len().next_multiple_of(8), 0);
                    assert_eq!(bytes(buffer.words()), expected);
                }
                assert_eq!(text_len(&vec![0x80; len]), len);
                let (mut scratch, mut other_scratch) = (Scratch::uninit(), Scratch::uninit());
                let mut buffer = Buffer::new(&mut scratch);
                let mut by_bytes = Buffer::new(&mut other_scratch);
                let text = "\u{7f}".repeat(len);
                str::append(&text, &mut buffer);
                by_bytes.append(text.as_bytes());
                by_bytes.append(&[0]);
                assert_eq!(buffer.words(), by_bytes.words());
                assert_eq!(bytes(buffer.words())[..len], *text.as_bytes());
            }
        }
    }

    #[test]
    fn payloads_are_the_same_at_each_place_in_a_word() {
        let text: Vec<u8> = (1..=60).collect();
        for before in 0..=17 {
            for len in 0..=text.len() {
                // A NUL in each place, and none.
                for nul in 0..=len {
                    let mut text = text[..len].to_vec();
                    if let Some(byte) = text.get_mut(nul) {
                        *byte = 0;
                    }
                    let (mut scratch, mut other_scratch) = (Scratch::uninit(), Scratch::uninit());
                    let mut by_text = Buffer::new(&mut scratch);
                    let mut by_bytes = Buffer::new(&mut other_scratch);
                    let mut expected = Vec::new();
                    for n in 0..before {
                        u8::append(0xf0 | n, &mut by_text);
                        u8::append(0xf0 | n, &mut by_bytes);
                        expected.push(0xf0 | n);
                    }
                    by_text.append_text(&text);
                    by_bytes.append(&text);
                    let mut all = expected.clone();
                    expected.extend(&text[..nul]);
                    expected.extend([0, 0xee]);
                    all.extend(&text);
                    all.push(0xee);
                    u8::append(0xee, &mut by_text);
                    u8::append(0xee, &mut by_bytes);
                    assert_eq!(*by_text.bytes(), expected, "{before}, {len}, {nul}");
                    assert_eq!(*by_bytes.bytes(), all, "{before}, {len}, {nul}");
                }
            }
        }
    }

    #[test]
    fn oversized_appends_are_left_out_as_a_whole() {
        for len in [Buffer::LEN - 1, Buffer::LEN - 4, Buffer::LEN - 9] {
            let text = "x".repeat(len);
            let mut scratch = Scratch::uninit();
            let mut buffer = Buffer::new(&mut scratch);
            str::append(&text, &mut buffer);
            let mut expected = text.into_bytes();
            expected.resize((len + 1).next_multiple_of(8), 0);
            assert_eq!(bytes(buffer.words()), expected);
            assert_eq!(*buffer.bytes(), expected[..len + 1]);
            assert!(buffer.has_room(Buffer::LEN - len - 1));
            assert!(!buffer.has_room(Buffer::LEN - len));
            // An append that does not fit has no effect.
            buffer.append(&[1; 512]);
            str::append(&"x".repeat(Buffer::LEN), &mut buffer);
            assert_eq!(bytes(buffer.words()), expected);
        }
    }
}
