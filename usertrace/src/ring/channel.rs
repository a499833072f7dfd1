//! A channel: rings of the same size, side by side.

use usertrace_sys::uapi::{LTT_PROTOCOL_RSEQ, LTT_SCOPE_CPU, LttInfoChannel, LttRingControl};

use super::{Geometry, GeometryError};

/// Most rings that a channel can have: Linux has no more CPUs.
pub const MAX_RINGS: u32 = 8192;

/// A channel that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Its rings have no possible size.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Too many rings.
    #[error("{0} rings are more than {MAX_RINGS}")]
    Rings(u32),
    /// A protocol that this program does not know.
    #[error("protocol {0} is not known")]
    Protocol(u32),
    /// Rings or control blocks that lie nowhere, or over each other.
    #[error("rings at {buffers:#x}, control blocks at {control:#x}, {stride} apart")]
    Place {
        /// Where the rings are.
        buffers: u64,
        /// Where the control blocks are.
        control: u64,
        /// The distance between them.
        stride: u32,
    },
}

/// Where the rings of a channel are, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    geometry: Geometry,
    nr_rings: u32,
    buffers: u64,
    control: u64,
    stride: u32,
    per_cpu: bool,
}

impl Channel {
    /// Checks what the kernel says of a channel.
    ///
    /// # Errors
    /// When no channel that this program can read is so.
    pub fn new(info: &LttInfoChannel) -> Result<Self, ChannelError> {
        let geometry = Geometry::new(info.subbuf_size, info.subbuf_count)?;
        if info.nr_rings > MAX_RINGS {
            return Err(ChannelError::Rings(info.nr_rings));
        }
        if info.protocol != LTT_PROTOCOL_RSEQ {
            return Err(ChannelError::Protocol(info.protocol));
        }
        let place = |offset: u64, step: u64| {
            offset
                .checked_add(u64::from(info.nr_rings) * step)
                .is_some()
                && offset.is_multiple_of(8)
        };
        let stride = info.control_stride as usize;
        let stride_fits = stride.is_multiple_of(8)
            && (info.nr_rings <= 1 || stride >= size_of::<LttRingControl>());
        if !stride_fits
            || !place(info.buffers_offset, geometry.ring_size())
            || !place(info.control_offset, u64::from(info.control_stride))
        {
            return Err(ChannelError::Place {
                buffers: info.buffers_offset,
                control: info.control_offset,
                stride: info.control_stride,
            });
        }
        Ok(Self {
            geometry,
            nr_rings: info.nr_rings,
            buffers: info.buffers_offset,
            control: info.control_offset,
            stride: info.control_stride,
            per_cpu: info.scope == LTT_SCOPE_CPU,
        })
    }

    /// Size of each ring.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// How many rings there are.
    #[must_use]
    pub fn nr_rings(&self) -> u32 {
        self.nr_rings
    }

    /// Where `ring` begins in the trace's slot of the write area.
    #[must_use]
    pub fn ring_offset(&self, ring: u32) -> u64 {
        debug_assert!(ring < self.nr_rings);
        self.buffers + u64::from(ring) * self.geometry.ring_size()
    }

    /// Where the control block of `ring` is in the trace's slot of the control area.
    #[must_use]
    pub fn control_offset(&self, ring: u32) -> u64 {
        debug_assert!(ring < self.nr_rings);
        self.control + u64::from(ring) * u64::from(self.stride)
    }

    /// The CPU that writes `ring`; 0 if that is not fixed.
    #[must_use]
    pub fn cpu(&self, ring: u32) -> u32 {
        if self.per_cpu { ring } else { 0 }
    }
}
