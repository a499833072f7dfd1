//! Finds the newest sub-buffer of a ring without its control block.

use usertrace_sys::uapi::LTT_SUBBUF_MAGIC;

use crate::geometry::MAX_POSITION;
use crate::reader::header_at;
use crate::{Geometry, RingMemory, SUBBUF_HEADER_LEN};

/// The newest sub-buffer that has a header. All earlier ones are complete. Only the lost control
/// block had the end of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestSubbuf {
    position: u64,
    size: u64,
}

impl NewestSubbuf {
    /// Searches the headers of all places. None if no place has a valid one.
    pub fn find(geometry: Geometry, memory: &mut impl RingMemory) -> Option<Self> {
        let size = geometry.subbuf_size();
        let places = (0..geometry.ring_size()).step_by(size as usize);
        let positions = places.filter_map(|place| {
            let header = header_at(geometry, memory, place);
            let is_header = header.magic == LTT_SUBBUF_MAGIC
                && header.position < MAX_POSITION
                && geometry.offset(header.position) == place;
            is_header.then_some(header.position)
        });
        let position = positions.max()?;
        Some(Self { position, size })
    }

    /// The position just behind its header. As a head, it makes the sub-buffer begun and empty.
    #[must_use]
    pub fn begin(self) -> u64 {
        self.position + SUBBUF_HEADER_LEN
    }

    /// The position of its end. Zeros follow the last record, unless an earlier sub-buffer was in
    /// the same place.
    #[must_use]
    pub fn end(self) -> u64 {
        self.position + self.size
    }
}
