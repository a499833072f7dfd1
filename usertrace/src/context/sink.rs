//! What the values of contexts are appended to.

use crate::event::{BufferMark, Payload, SizedBuffer};

/// Takes the bytes of contexts.
pub(super) trait Sink {
    /// How much it had.
    type Mark: Copy;

    fn append(&mut self, bytes: &[u8]);

    /// Appends the number of each item. False if one has none: then it appends nothing.
    fn append_numbers<T>(&mut self, items: &[T], number: impl Fn(&T) -> Option<u64>) -> bool;

    fn mark(&self) -> Self::Mark;

    /// Drops what was appended since the mark.
    fn back_to(&mut self, mark: Self::Mark);
}

impl<const WORDS: usize> Sink for SizedBuffer<'_, WORDS> {
    type Mark = BufferMark;

    #[inline(always)]
    fn append(&mut self, bytes: &[u8]) {
        Payload::append(self, bytes);
    }

    #[inline(always)]
    fn append_numbers<T>(&mut self, items: &[T], number: impl Fn(&T) -> Option<u64>) -> bool {
        self.append_numbers(items, number)
    }

    #[inline(always)]
    fn mark(&self) -> BufferMark {
        self.mark()
    }

    #[inline(always)]
    fn back_to(&mut self, mark: BufferMark) {
        self.back_to(mark);
    }
}
