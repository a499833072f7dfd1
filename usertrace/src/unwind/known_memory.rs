//! Memory that is known to be readable.

pub(super) const WORD: usize = size_of::<usize>();

/// A range of whole words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownMemory {
    low: usize,
    /// Number of the last word.
    last: usize,
}

impl KnownMemory {
    /// The words from `low` up to `end`; none if there is not one.
    ///
    /// # Safety
    /// That memory must be readable as long as the value is used.
    #[inline]
    pub(crate) unsafe fn new(low: usize, end: usize) -> Option<Self> {
        let low = low.checked_next_multiple_of(WORD)?;
        let last = (end.checked_sub(low)? / WORD).checked_sub(1)?;
        Some(Self { low, last })
    }

    /// The end of the last word.
    pub(super) fn end(self) -> usize {
        self.low + (self.last + 1) * WORD
    }

    /// The words from an address on; none if it is not aligned, or elsewhere.
    #[inline(always)]
    pub(super) fn from(self, address: usize) -> Option<Self> {
        // The bits of a word's alignment make the number too large.
        let number = address.wrapping_sub(self.low).rotate_right(WORD.ilog2());
        Some(Self {
            low: address,
            last: self.last.checked_sub(number)?,
        })
    }

    /// The word with a number, from 0 on; none if there are fewer.
    #[inline(always)]
    pub(super) fn get(self, number: usize) -> Option<usize> {
        if number > self.last {
            return None;
        }
        let place = std::ptr::with_exposed_provenance::<usize>(self.low + number * WORD);
        // SAFETY: aligned, and in the range, which is readable by the contract of `new`. Volatile:
        // the word may be anything, and the compiler must not assume what it stored there.
        Some(unsafe { place.read_volatile() })
    }

    /// The word at an address; none if it is not aligned, or elsewhere.
    #[inline(always)]
    pub(super) fn word(self, address: usize) -> Option<usize> {
        self.from(address)?.get(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_inside_are_read() {
        let words = [11, 22, 33usize];
        let base = words.as_ptr().expose_provenance();
        // SAFETY: the array stays.
        let memory = |low, end| unsafe { KnownMemory::new(base + low, base + end) };
        let all = memory(0, 24).unwrap();
        assert_eq!(all.end(), base + 24);
        assert_eq!(
            [0, 8, 16].map(|at| all.word(base + at)),
            [Some(11), Some(22), Some(33)]
        );
        for at in [1, 4, 7, 9, 17, 20, 24, 25, 32, usize::MAX, usize::MAX - 7] {
            assert_eq!(all.word(base.wrapping_add(at)), None, "{at}");
        }
        assert_eq!([0, 7, 8].map(|address| all.word(address)), [None; 3]);
        let part = memory(1, 23).unwrap();
        assert_eq!(
            [0, 8, 16].map(|at| part.word(base + at)),
            [None, Some(22), None]
        );
        let behind = all.from(base + 8).unwrap();
        assert_eq!(
            [0, 1, 2, usize::MAX].map(|number| behind.get(number)),
            [Some(22), Some(33), None, None]
        );
        assert!(all.from(base + 24).is_none() && all.from(base + 4).is_none());
        assert!(memory(0, 7).is_none() && memory(1, 15).is_none() && memory(8, 0).is_none());
        // SAFETY: not a range.
        assert!(unsafe { KnownMemory::new(usize::MAX, usize::MAX) }.is_none());
    }
}
