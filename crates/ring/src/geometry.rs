//! Sizes of a ring, checked.

/// Largest ring that the kernel makes.
pub const MAX_RING_SIZE: u64 = 64 << 20;
/// Smallest sub-buffer that the kernel makes.
pub const MIN_SUBBUF_SIZE: u64 = 4096;

/// No ring gets here: 146 years at a gigabyte per second. Positions below it can be added without
/// overflow.
pub(super) const MAX_POSITION: u64 = 1 << 62;

/// Sizes that are no ring's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// Not a power of two, or too small.
    #[error("sub-buffer size {0} is not a power of two of at least {MIN_SUBBUF_SIZE}")]
    SubbufSize(u32),
    /// Not a power of two, or too small.
    #[error("{0} sub-buffers are not a power of two of at least 2")]
    SubbufCount(u32),
    /// Too large.
    #[error("a ring of {count} sub-buffers of {size} bytes is larger than {MAX_RING_SIZE}")]
    RingSize {
        /// Sub-buffer size.
        size: u32,
        /// Sub-buffer count.
        count: u32,
    },
}

/// Sizes of a ring: both powers of two, their product at most [`MAX_RING_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    subbuf_size: u64,
    subbuf_count: u64,
}

impl Geometry {
    /// Checks the sizes of a ring.
    ///
    /// # Errors
    /// When no ring of the kernel's has these sizes.
    pub fn new(subbuf_size: u32, subbuf_count: u32) -> Result<Self, GeometryError> {
        let (size, count) = (u64::from(subbuf_size), u64::from(subbuf_count));
        if !size.is_power_of_two() || size < MIN_SUBBUF_SIZE {
            return Err(GeometryError::SubbufSize(subbuf_size));
        }
        if !count.is_power_of_two() || count < 2 {
            return Err(GeometryError::SubbufCount(subbuf_count));
        }
        // Two factors below 2^32 do not overflow 64 bits.
        if size * count > MAX_RING_SIZE {
            return Err(GeometryError::RingSize {
                size: subbuf_size,
                count: subbuf_count,
            });
        }
        Ok(Self {
            subbuf_size: size,
            subbuf_count: count,
        })
    }

    /// Bytes in a sub-buffer.
    #[must_use]
    pub fn subbuf_size(self) -> u64 {
        self.subbuf_size
    }

    /// Bytes in the ring.
    #[must_use]
    pub fn ring_size(self) -> u64 {
        self.subbuf_size * self.subbuf_count
    }

    /// Where the byte at `position` is in the ring.
    #[must_use]
    pub fn offset(self, position: u64) -> u64 {
        position & (self.ring_size() - 1)
    }

    /// Start of the sub-buffer that `position` is in.
    #[must_use]
    pub fn subbuf_start(self, position: u64) -> u64 {
        position & !(self.subbuf_size - 1)
    }

    /// The oldest sub-buffer that can still be in a ring whose committed part ends at `head`.
    #[must_use]
    pub fn oldest(self, head: u64) -> u64 {
        let newest = self.subbuf_start(head.saturating_sub(1));
        newest.saturating_sub(self.ring_size() - self.subbuf_size)
    }

    /// Was `position` that of the sub-buffer which was, in an earlier round, at the place of the
    /// one at `start`?
    #[must_use]
    pub fn is_earlier_round(self, position: u64, start: u64) -> bool {
        position < start && (start - position).is_multiple_of(self.ring_size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        assert!(Geometry::new(4096, 2).is_ok());
        assert!(Geometry::new(32 << 20, 2).is_ok());
        for (size, count) in [(0, 2), (2048, 2), (4097, 2), (u32::MAX, 2)] {
            assert_eq!(
                Geometry::new(size, count),
                Err(GeometryError::SubbufSize(size))
            );
        }
        for count in [0, 1, 3, u32::MAX] {
            assert_eq!(
                Geometry::new(4096, count),
                Err(GeometryError::SubbufCount(count))
            );
        }
        for (size, count) in [(64 << 20, 2), (4096, 1 << 31), (1 << 31, 1 << 31)] {
            assert_eq!(
                Geometry::new(size, count),
                Err(GeometryError::RingSize { size, count })
            );
        }
    }

    #[test]
    fn an_earlier_round_is_a_multiple_of_the_ring_below() {
        let geometry = Geometry::new(4096, 4).unwrap();
        for (position, start, earlier) in [
            (0, 0, false),
            (0, 4 * 4096, true),
            (4096, 13 * 4096, true),
            (4096, 12 * 4096, false),
            (4096 + 8, 5 * 4096, false),
            (5 * 4096, 4096, false),
        ] {
            assert_eq!(geometry.is_earlier_round(position, start), earlier);
        }
    }

    #[test]
    fn the_oldest_sub_buffer_is_one_ring_behind() {
        let geometry = Geometry::new(4096, 4).unwrap();
        for (head, oldest) in [
            (0, 0),
            (1, 0),
            (4 * 4096, 0),
            (4 * 4096 + 8, 4096),
            (5 * 4096, 4096),
            (5 * 4096 + 32, 2 * 4096),
        ] {
            assert_eq!(geometry.oldest(head), oldest, "head {head}");
        }
    }
}
