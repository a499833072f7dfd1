//! The addresses that a walk came to.

use std::mem::MaybeUninit;

/// Addresses, from the innermost on.
#[derive(Debug)]
pub(crate) struct Addresses<'a> {
    /// The first `len` are written.
    places: &'a mut [MaybeUninit<[u8; 8]>],
    len: usize,
}

impl<'a> Addresses<'a> {
    /// None, with places for others.
    pub(crate) fn new(places: &'a mut [MaybeUninit<[u8; 8]>]) -> Self {
        Self { places, len: 0 }
    }

    /// Places for others.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.places.len() - self.len
    }

    /// Whether there is room for another one.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Appends an address, if there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, address: usize) {
        self.push_all(1, || Some(address));
    }

    /// Appends at most `count` addresses, up to the first none. Returns how many.
    #[inline(always)]
    pub(super) fn push_all(
        &mut self,
        count: usize,
        mut next: impl FnMut() -> Option<usize>,
    ) -> usize {
        let room = &mut self.places[self.len..];
        let count = count.min(room.len());
        let mut appended = 0;
        for place in &mut room[..count] {
            let Some(address) = next() else { break };
            place.write((address as u64).to_ne_bytes());
            appended += 1;
        }
        self.len += appended;
        appended
    }

    /// Drops the last ones.
    pub(super) fn drop_last(&mut self, count: usize) {
        self.len = self.len.saturating_sub(count);
    }

    /// All of them, as the bytes of numbers.
    pub(crate) fn get(&self) -> &[[u8; 8]] {
        // SAFETY: only `push_all` makes `len` larger, and it wrote those up to there.
        unsafe { std::slice::from_raw_parts(self.places.as_ptr().cast(), self.len) }
    }
}
