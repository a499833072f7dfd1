//! The newest sub-buffer of a ring whose control block is not known.

use usertrace_sys::uapi::LTT_SUBBUF_MAGIC;

use crate::geometry::MAX_POSITION;
use crate::reader::header_at;
use crate::{Geometry, RingMemory, SUBBUF_HEADER_LEN};

/// The newest sub-buffer that has a header. All before it are complete; only the control block says
/// how far it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestSubbuf {
    position: u64,
    size: u64,
}

impl NewestSubbuf {
    /// Looks at the headers of all places. None: nothing was written, or nothing of it is there.
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

    /// A head just behind its header: the sub-buffer counts as begun, and no record of it is read.
    #[must_use]
    pub fn begin(self) -> u64 {
        self.position + SUBBUF_HEADER_LEN
    }

    /// A head at its end. Zeros follow its last record if its place had no other sub-buffer before.
    #[must_use]
    pub fn end(self) -> u64 {
        self.position + self.size
    }
}
