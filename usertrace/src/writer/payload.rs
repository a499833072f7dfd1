//! What a record carries, and where the bytes of it go.

use std::marker::PhantomData;

use super::reserve_commit;

/// What a record carries.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    /// Words that are at hand.
    Words(&'a [u64]),
    /// Bytes that are put together where they stay, as they are too many to be copied: how many,
    /// and what appends them. It may be called several times.
    Made {
        len: usize,
        fill: &'a dyn Fn(&mut Cursor<'_>),
    },
}

/// Takes the bytes of a payload, piece by piece.
#[derive(Debug)]
pub struct Cursor<'a>(Target<'a>);

#[derive(Debug)]
enum Target<'a> {
    /// The first `left` bytes from `next` on are to be written to, and are nobody else's.
    Memory {
        next: *mut u8,
        left: usize,
        memory: PhantomData<&'a mut [u8]>,
    },
    Shared(reserve_commit::Record<'a>),
}

impl<'a> Cursor<'a> {
    /// # Safety
    /// The `len` bytes from `start` on must be writable and nobody else's, for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self(Target::Memory {
            next: start,
            left: len,
            memory: PhantomData,
        })
    }

    pub(super) fn shared(record: reserve_commit::Record<'a>) -> Self {
        Self(Target::Shared(record))
    }

    /// Appends to the payload. What there is no room for is left out.
    #[inline(always)]
    pub fn append(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Target::Memory { next, left, .. } => {
                let len = bytes.len().min(*left);
                // SAFETY: `next` has `left` bytes, and these are no part of `bytes`, which somebody
                // else may read.
                unsafe { copy(bytes.as_ptr(), *next, len) };
                *next = next.wrapping_add(len);
                *left -= len;
            }
            Target::Shared(record) => record.append(bytes),
        }
    }

    /// Ends the payload: what was not appended is zeros.
    pub(crate) fn finish(self) {
        match self.0 {
            Target::Memory { next, left, .. } => {
                // SAFETY: `next` has `left` bytes.
                unsafe { next.write_bytes(0, left) }
            }
            Target::Shared(record) => record.finish(),
        }
    }
}

/// Copies bytes: few of them without a call, as most texts are short.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]'s.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Copies `T` at an offset.
    ///
    /// # Safety
    /// Both must have that much from there on.
    #[inline(always)]
    unsafe fn one<T>(from: *const u8, to: *mut u8, at: usize) {
        // SAFETY: a `T` lies at that offset of both, as `copy`'s offsets are.
        unsafe {
            let value = from.add(at).cast::<T>().read_unaligned();
            to.add(at).cast::<T>().write_unaligned(value);
        }
    }
    // SAFETY: `len` bytes are at both, as this function's caller promises; the offsets are such
    // that nothing goes beyond `len`. The last piece may overlap with the one before it.
    unsafe {
        match len {
            0 => {}
            1 => one::<u8>(from, to, 0),
            2..4 => {
                one::<u16>(from, to, 0);
                one::<u16>(from, to, len - 2);
            }
            4..8 => {
                one::<u32>(from, to, 0);
                one::<u32>(from, to, len - 4);
            }
            8..=16 => {
                one::<u64>(from, to, 0);
                one::<u64>(from, to, len - 8);
            }
            17..=32 => {
                one::<u128>(from, to, 0);
                one::<u128>(from, to, len - 16);
            }
            33..=64 => {
                one::<u128>(from, to, 0);
                one::<u128>(from, to, 16);
                one::<u128>(from, to, len - 32);
                one::<u128>(from, to, len - 16);
            }
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_appended_as_they_are() {
        let bytes: Vec<u8> = (1..=200).collect();
        for len in 0..=200 {
            for room in [len, len + 3, len / 2] {
                let mut memory = [0xaa; 210];
                // SAFETY: the memory has that much.
                let mut cursor = unsafe { Cursor::new(memory.as_mut_ptr().add(1), room + 1) };
                cursor.append(&[0x55]);
                cursor.append(&bytes[..len]);
                cursor.finish();
                let fits = room.min(len);
                let mut expected = vec![0xaa, 0x55];
                expected.extend(&bytes[..fits]);
                expected.resize(room + 2, 0);
                expected.resize(210, 0xaa);
                assert_eq!(memory[..], expected, "{len} bytes, room for {room}");
            }
        }
    }
}
