//! Reads bytes of a payload that is not recorded yet.

use crate::writer::Cursor;

/// Bytes of a composed payload that are kept. Most values that conditions refer to lie in one such
/// part, and signal stacks have little room.
pub(super) const WINDOW: usize = 256;

/// The bytes of a payload.
pub(super) enum PayloadBytes<'a> {
    Words(&'a [u8]),
    Made(Window<'a>),
}

/// A part of a payload that a function composes.
pub(super) struct Window<'a> {
    len: usize,
    fill: &'a dyn Fn(&mut Cursor<'_>),
    /// Which bytes `bytes` has; `usize::MAX`: none yet.
    start: usize,
    bytes: &'a mut [u8; WINDOW],
}

impl<'a> PayloadBytes<'a> {
    #[inline]
    pub(super) fn words(words: &'a [u64]) -> Self {
        let len = size_of_val(words);
        // SAFETY: the bytes of `words`, which live as long.
        Self::Words(unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), len) })
    }

    /// The bytes of a payload of `len` bytes that `fill` composes.
    pub(super) fn made(
        len: usize,
        fill: &'a dyn Fn(&mut Cursor<'_>),
        window: &'a mut [u8; WINDOW],
    ) -> Self {
        Self::Made(Window {
            len,
            fill,
            start: usize::MAX,
            bytes: window,
        })
    }

    /// The length of the payload, with its padding.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Words(bytes) => bytes.len(),
            Self::Made(window) => window.len,
        }
    }

    /// A byte of the payload; none after its end.
    #[inline]
    pub(super) fn byte(&mut self, at: usize) -> Option<u8> {
        match self {
            Self::Words(bytes) => bytes.get(at).copied(),
            Self::Made(window) => window.byte(at),
        }
    }

    /// Some bytes of the payload. Those after its end are 0.
    #[inline]
    pub(super) fn take<const N: usize>(&mut self, at: usize) -> [u8; N] {
        if let Self::Words(bytes) = self
            && let Some(bytes) = bytes.get(at..).and_then(<[u8]>::first_chunk)
        {
            return *bytes;
        }
        std::array::from_fn(|n| self.byte(at.saturating_add(n)).unwrap_or(0))
    }
}

impl Window<'_> {
    fn byte(&mut self, at: usize) -> Option<u8> {
        if at >= self.len {
            return None;
        }
        if at.checked_sub(self.start).is_none_or(|at| at >= WINDOW) {
            self.start = at;
            self.bytes.fill(0);
            (self.fill)(&mut Cursor::part(self.bytes, at));
        }
        self.bytes.get(at - self.start).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composed_payloads_are_read_anywhere() {
        let all: Vec<u8> = (0..1000u32).map(|n| (n % 251) as u8).collect();
        let fill = |cursor: &mut Cursor<'_>| {
            all.chunks(37).for_each(|chunk| cursor.append(chunk));
        };
        let mut window = [0; WINDOW];
        let mut bytes = PayloadBytes::made(all.len(), &fill, &mut window);
        for at in [0, 1, 254, 255, 256, 500, 3, 990, 999, 1000, usize::MAX] {
            assert_eq!(bytes.byte(at), all.get(at).copied(), "{at}");
            let expected: [u8; 8] = std::array::from_fn(|n| {
                let byte = at.checked_add(n).and_then(|at| all.get(at));
                byte.copied().unwrap_or(0)
            });
            assert_eq!(bytes.take::<8>(at), expected, "{at}");
        }
    }
}
