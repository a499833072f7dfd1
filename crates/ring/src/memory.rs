//! Access to the bytes of a ring and to its positions.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Positions from a ring's control block, as of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Everything below is committed or, with protocol `Shared`, reserved.
    pub head: u64,
    /// Everything below may be overwritten by now. The part more than a ring below `head` is
    /// overwritten anyway.
    pub claimed: u64,
}

/// A ring that can be read: its bytes and its positions.
pub trait RingMemory {
    /// Copies `buffer.len()` bytes from `offset` of the ring. Missing bytes read as zeros: pages
    /// that were never written, pages that the dump lacks, and everything behind the ring. The
    /// bytes may change meanwhile. Each aligned word is copied as a whole, in ascending order, with
    /// acquire semantics. So a copy that has the done mark of a long record has its payload.
    fn read(&mut self, offset: u64, buffer: &mut [u8]);

    /// Loads the word at `offset`, a multiple of 8, with acquire semantics. Later reads see
    /// everything that its writer stored before it (release).
    fn load(&mut self, offset: u64) -> u64;

    /// Loads the positions with acquire semantics, after everything that was read earlier. If an
    /// earlier copy has a byte that was stored after a claim or a reservation, the result includes
    /// that claim or reservation. A dump always returns the same.
    fn positions(&mut self) -> Positions;
}

impl<M: RingMemory + ?Sized> RingMemory for &mut M {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        (**self).read(offset, buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        (**self).load(offset)
    }

    fn positions(&mut self) -> Positions {
        (**self).positions()
    }
}

/// A ring that no writer changes any more.
#[derive(Clone, Copy, Debug)]
pub struct Frozen<'a> {
    bytes: &'a [u8],
    positions: Positions,
}

impl<'a> Frozen<'a> {
    /// Wraps the bytes of a ring and its positions.
    #[must_use]
    pub fn new(bytes: &'a [u8], positions: Positions) -> Self {
        Self { bytes, positions }
    }
}

impl RingMemory for Frozen<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        buffer.fill(0);
        let there = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.bytes.get(offset..))
            .unwrap_or_default();
        let len = there.len().min(buffer.len());
        buffer[..len].copy_from_slice(&there[..len]);
    }

    fn load(&mut self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn positions(&mut self) -> Positions {
        self.positions
    }
}

/// Bytes that other threads and processes may write at any time. This process only reads them, and
/// only by atomic loads.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    start: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a AtomicU8>,
}

// SAFETY: `SharedBytes` only does atomic loads, which any thread may do.
unsafe impl Send for SharedBytes<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedBytes<'_> {}

impl SharedBytes<'_> {
    /// Wraps the `len` bytes from `start` on.
    ///
    /// # Safety
    /// They must be mapped and readable for as long as the value or a copy of it lives, `start`
    /// must be a multiple of 8, and this process must access them by atomics only.
    #[must_use]
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self {
            start,
            len,
            memory: PhantomData,
        }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes, with zeros behind the end. If `offset` is a multiple of 8, it copies whole
    /// words in ascending order.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len);
        let there = buffer.len().min(self.len - offset);
        let (there, behind) = buffer.split_at_mut(there);
        behind.fill(0);
        let words = if offset % 8 == 0 { there.len() / 8 } else { 0 };
        let (of_words, of_bytes) = there.split_at_mut(words * 8);
        let load = |n: usize| {
            // Acquire pairs with the release store that marks a long record as done: a copy that
            // has the mark has the payload, which is loaded later. For everything else, the caller
            // already has the order it needs, from `load` or from a system call. SAFETY: in bounds,
            // as `offset + there.len() <= len`; aligned, as the caller of `new` guarantees that of
            // `start`.
            let value = unsafe {
                let word = self.start.as_ptr().add(offset + n * 8);
                AtomicU64::from_ptr(word.cast()).load(Ordering::Acquire)
            };
            value.to_ne_bytes()
        };
        // One cache line per iteration: compilers do not unroll loops of atomics.
        let (each, _) = of_words.as_chunks_mut::<8>();
        let (lines, rest) = each.as_chunks_mut::<8>();
        for (line, of_line) in lines.iter_mut().enumerate() {
            for (n, word) in of_line.iter_mut().enumerate() {
                *word = load(line * 8 + n);
            }
        }
        for (n, word) in (lines.len() * 8..).zip(rest) {
            *word = load(n);
        }
        for (n, byte) in of_bytes.iter_mut().enumerate() {
            // SAFETY: in bounds as above; a byte is always aligned.
            *byte = unsafe {
                let byte = self.start.as_ptr().add(offset + words * 8 + n);
                AtomicU8::from_ptr(byte).load(Ordering::Relaxed)
            };
        }
    }

    /// Loads the word at `offset` with acquire semantics. Pairs with a writer's release store or
    /// addition. 0 beyond the end, and at an offset that is not a multiple of 8.
    #[must_use]
    pub fn load(&self, offset: u64) -> u64 {
        let inside = usize::try_from(offset)
            .ok()
            .filter(|offset| offset % 8 == 0)
            .filter(|offset| offset.checked_add(8).is_some_and(|end| end <= self.len));
        let Some(offset) = inside else {
            return 0;
        };
        // SAFETY: in bounds by the filters above; aligned, as in `read`.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
            .load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_equal_frozen_ones() {
        let words: Vec<AtomicU64> = (0..512u64).map(|n| (n * 0x0101_0307).into()).collect();
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        let start = NonNull::from(&words[..]).cast();
        // SAFETY: `words` outlives `shared`, is aligned, and consists of atomics.
        let shared = unsafe { SharedBytes::new(start, bytes.len()) };
        let mut frozen = Frozen::new(&bytes, Positions::default());
        for (offset, len) in [
            (0, 4096),
            (8, 16),
            (8, 13),
            (3, 20),
            (4094, 10),
            (9000, 4),
            (4096, 1),
            (u64::MAX, 8),
        ] {
            let (mut got, mut want) = (vec![0xee; len], vec![0xdd; len]);
            shared.read(offset, &mut got);
            frozen.read(offset, &mut want);
            assert_eq!(got, want, "{offset} {len}");
        }
        for offset in [0, 8, 4088, 4096, !7] {
            assert_eq!(shared.load(offset), frozen.load(offset), "{offset}");
        }
        assert_eq!(shared.load(4), 0);
    }
}
