//! Validated sizes of a ring.

/// Largest ring that the kernel creates, in bytes.
pub const MAX_RING_SIZE: u64 = 64 << 20;
/// Smallest sub-buffer that the kernel creates, in bytes.
pub const MIN_SUBBUF_SIZE: u64 = 4096;

/// Upper limit of positions: 146 years at a gigabyte per second. Sums of two positions below it do
/// not overflow.
pub(super) const MAX_POSITION: u64 = 1 << 62;

/// Invalid ring sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// Sub-buffer size that is not a power of two, or too small.
    #[error("sub-buffer size {0} is not a power of two of at least {MIN_SUBBUF_SIZE}")]
    SubbufSize(u32),
    /// Sub-buffer count that is not a power of two, or too small.
    #[error("{0} sub-buffers are not a power of two of at least 2")]
    SubbufCount(u32),
    /// Ring that is too large.
    #[error("a ring of {count} sub-buffers of {size} bytes is larger than {MAX_RING_SIZE}")]
    RingSize {
        /// Sub-buffer size in bytes.
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
    /// Validates the sizes of a ring.
    ///
    /// # Errors
    /// If the kernel creates no ring with these sizes.
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

    /// Offset in the ring of the byte at `position`.
    #[must_use]
    pub fn offset(self, position: u64) -> u64 {
        position & (self.ring_size() - 1)
    }

    /// Start of the sub-buffer that contains `position`.
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

    /// Whether a sub-buffer at `position` was in the same place as the one at `start`, in an
    /// earlier round.
    #[must_use]
    pub fn is_earlier_round(self, position: u64, start: u64) -> bool {
        position < start && (start - position).is_multiple_of(self.ring_size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_validated() {
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
    fn earlier_rounds_are_whole_rings_below() {
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
    fn oldest_subbuf_is_one_ring_behind() {
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
