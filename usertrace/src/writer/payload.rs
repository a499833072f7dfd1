//! Payloads of records, and the cursor that appends to them.

use std::marker::PhantomData;

use super::reserve_commit;

/// A record's payload.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    /// Words that the caller has in memory.
    Words(&'a [u64]),
    /// Bytes that a function appends in the ring itself, as a copy would cost too much. The writer
    /// may call it several times.
    Made {
        len: usize,
        fill: &'a dyn Fn(&mut Cursor<'_>),
    },
}

/// Appends the bytes of a payload, piece by piece.
#[derive(Debug)]
pub struct Cursor<'a>(Target<'a>);

#[derive(Debug)]
enum Target<'a> {
    /// Plain memory: the `left` bytes from `next` on are for this cursor alone.
    Memory {
        next: *mut u8,
        left: usize,
        memory: PhantomData<&'a mut [u8]>,
    },
    /// A record of the shared protocol.
    Shared(reserve_commit::Record<'a>),
    /// A part of the payload: what follows after `skip` more bytes.
    Part { skip: usize, rest: &'a mut [u8] },
}

impl<'a> Cursor<'a> {
    /// A cursor for plain memory.
    ///
    /// # Safety
    /// The `len` bytes from `start` on must be writable, and no other code may access them, for
    /// `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self(Target::Memory {
            next: start,
            left: len,
            memory: PhantomData,
        })
    }

    /// A cursor for a record of the shared protocol.
    pub(super) fn shared(record: reserve_commit::Record<'a>) -> Self {
        Self(Target::Shared(record))
    }

    /// A cursor that keeps the part of the payload from offset `start` on.
    pub(crate) fn part(bytes: &'a mut [u8], start: usize) -> Self {
        Self(Target::Part {
            skip: start,
            rest: bytes,
        })
    }

    /// Appends to the payload. Bytes beyond its length are left out.
    #[inline(always)]
    pub fn append(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Target::Memory { next, left, .. } => {
                let len = bytes.len().min(*left);
                // SAFETY: `next` has `left` bytes, which this cursor alone accesses, so they do not
                // overlap with `bytes`.
                unsafe { copy(bytes.as_ptr(), *next, len) };
                *next = next.wrapping_add(len);
                *left -= len;
            }
            Target::Shared(record) => record.append(bytes),
            Target::Part { skip, rest } => append_part(skip, rest, bytes),
        }
    }

    /// Ends the payload, and fills the rest of it with zeros.
    pub(crate) fn finish(self) {
        match self.0 {
            Target::Memory { next, left, .. } => {
                // SAFETY: `next` has `left` bytes.
                unsafe { next.write_bytes(0, left) }
            }
            Target::Shared(record) => record.finish(),
            Target::Part { rest, .. } => rest.fill(0),
        }
    }
}

/// Appends to a part of a payload. Not inlined, as only conditions on long events need it.
#[cold]
#[inline(never)]
fn append_part(skip: &mut usize, rest: &mut &mut [u8], bytes: &[u8]) {
    let skipped = bytes.len().min(*skip);
    *skip -= skipped;
    let bytes = &bytes[skipped..];
    let len = bytes.len().min(rest.len());
    let (now, later) = std::mem::take(rest).split_at_mut(len);
    now.copy_from_slice(&bytes[..len]);
    *rest = later;
}

/// Copies bytes: up to 64 without a call, as most texts are short.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`]'s.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Copies a `T` at an offset.
    ///
    /// # Safety
    /// Both must have a whole `T` at the offset.
    #[inline(always)]
    unsafe fn one<T>(from: *const u8, to: *mut u8, at: usize) {
        // SAFETY: both have a `T` at that offset, as this function's caller promises.
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
