//! Where a ring's bytes are, and its positions.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a ring's control block says, as of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Everything below is committed, or, in a ring of the shared protocol, reserved.
    pub head: u64,
    /// Everything below may be overwritten by now, in what is not below already by the `head`.
    pub claimed: u64,
}

/// The bytes of one ring, and its positions.
pub trait RingMemory {
    /// Copies `buffer.len()` bytes from `offset` of the ring. What is not there reads as zeros: a
    /// page that was never written, one that the dump does not have, or whatever lies behind the
    /// ring. The bytes may change meanwhile; a word at a multiple of 8 is copied as a whole, and
    /// not before the words in front of it, each with acquire semantics: where the copy has that a
    /// long record is done, it has its payload.
    fn read(&mut self, offset: u64, buffer: &mut [u8]);

    /// The word at `offset`, a multiple of 8, by one load with acquire semantics: what its writer
    /// stored before it (release) is seen by what is read afterwards.
    fn load(&mut self, offset: u64) -> u64;

    /// The positions as they are now, loaded with acquire semantics, and not before anything that
    /// was read earlier: if an earlier copy has a byte of what followed a claim or a reservation,
    /// that is seen here. For a dump always the same.
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

/// A ring in memory that nobody writes any more.
#[derive(Clone, Copy, Debug)]
pub struct Frozen<'a> {
    bytes: &'a [u8],
    positions: Positions,
}

impl<'a> Frozen<'a> {
    /// The bytes of a ring, and its positions.
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

/// Bytes that another process, or another thread, may write at any time. They are only read, and
/// only by atomics.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    start: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a AtomicU8>,
}

// SAFETY: memory that is only read through atomics belongs to no thread.
unsafe impl Send for SharedBytes<'_> {}
// SAFETY: likewise.
unsafe impl Sync for SharedBytes<'_> {}

impl SharedBytes<'_> {
    /// The `len` bytes from `start` on.
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

    /// How many they are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes; zeros behind the end. Whole words where that is possible, which is where
    /// `offset` is a multiple of 8, one after the other.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len);
        let there = buffer.len().min(self.len - offset);
        let (there, behind) = buffer.split_at_mut(there);
        behind.fill(0);
        let words = if offset % 8 == 0 { there.len() / 8 } else { 0 };
        let (of_words, of_bytes) = there.split_at_mut(words * 8);
        let load = |n: usize| {
            // Acquire: pairs with the store that says that a long record is done. Its payload is
            // read after that, and so is there, if the record is done in the copy. What all else
            // needs, whoever asks has from `load`, or from a call of the kernel's. SAFETY: inside,
            // as `offset + there.len() <= len`, and aligned: `new`'s caller promised that of the
            // start.
            let value = unsafe {
                let word = self.start.as_ptr().add(offset + n * 8);
                AtomicU64::from_ptr(word.cast()).load(Ordering::Acquire)
            };
            value.to_ne_bytes()
        };
        // By lines of the cache: compilers do not unroll loops of atomics.
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
            // SAFETY: as above; bytes are always aligned.
            *byte = unsafe {
                let byte = self.start.as_ptr().add(offset + words * 8 + n);
                AtomicU8::from_ptr(byte).load(Ordering::Relaxed)
            };
        }
    }

    /// The word at `offset`, with acquire semantics: pairs with a release store or addition of its
    /// writer's. 0 where there is none, or at an offset that is not a multiple of 8.
    #[must_use]
    pub fn load(&self, offset: u64) -> u64 {
        let inside = usize::try_from(offset)
            .ok()
            .filter(|offset| offset % 8 == 0)
            .filter(|offset| offset.checked_add(8).is_some_and(|end| end <= self.len));
        let Some(offset) = inside else {
            return 0;
        };
        // SAFETY: inside, and aligned, as in `read`.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
            .load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_read_what_is_there() {
        let words: Vec<AtomicU64> = (0..512u64).map(|n| (n * 0x0101_0307).into()).collect();
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        let start = NonNull::from(&words[..]).cast();
        // SAFETY: the words live as long, and are atomics.
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
