//! A channel: rings of the same size, side by side.

use usertrace_sys::uapi::{LttInfoChannel, LttRingControl};
use usertrace_sys::{Mode, Protocol, Scope};

use crate::geometry::MAX_POSITION;
use crate::{Geometry, GeometryError, Positions};

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
    /// A mode that this program does not know.
    #[error("mode {0} is not known")]
    Mode(u32),
    /// A scope that this program does not know.
    #[error("scope {0} is not known")]
    Scope(u32),
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

/// How a ring is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its sizes.
    pub geometry: Geometry,
    /// How its records are committed.
    pub protocol: Protocol,
}

impl Format {
    /// The first sub-buffer of which nothing was overwritten. What becomes of records when the ring
    /// is full may change at any time, so that is not asked: who discards overwrites nothing but
    /// what was consumed.
    pub(super) fn valid_from(self, positions: Positions) -> u64 {
        let geometry = self.geometry;
        let head = positions.head.min(MAX_POSITION);
        let newest = geometry.subbuf_start(head.saturating_sub(1));
        // A sub-buffer that is begun takes the place of the one that was a ring before it. In a
        // ring of protocol `Rseq` that overwrites, its place is claimed before; in one of protocol
        // `Shared`, it is reserved before, by moving the head. No writer claims the newest one.
        let claimed = geometry.subbuf_start(positions.claimed).min(newest);
        geometry.oldest(head).max(claimed)
    }
}

/// Where the rings of a channel are, how large, and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    format: Format,
    mode: Mode,
    scope: Scope,
    nr_rings: u32,
    buffers: u64,
    control: u64,
    stride: u32,
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
        let protocol = [Protocol::Rseq, Protocol::Shared]
            .into_iter()
            .find(|protocol| *protocol as u32 == info.protocol)
            .ok_or(ChannelError::Protocol(info.protocol))?;
        let mode = [Mode::Discard, Mode::Overwrite, Mode::Block]
            .into_iter()
            .find(|mode| *mode as u32 == info.mode)
            .ok_or(ChannelError::Mode(info.mode))?;
        let scope = [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid]
            .into_iter()
            .find(|scope| *scope as u32 == info.scope)
            .ok_or(ChannelError::Scope(info.scope))?;
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
            format: Format { geometry, protocol },
            mode,
            scope,
            nr_rings: info.nr_rings,
            buffers: info.buffers_offset,
            control: info.control_offset,
            stride: info.control_stride,
        })
    }

    /// Size of each ring.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.format.geometry
    }

    /// How each ring is to be read.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// What became of records when a ring was full, as the kernel said it: that may change at any
    /// time.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Who writes a ring.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
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
        self.buffers + u64::from(ring) * self.geometry().ring_size()
    }

    /// Where the control block of `ring` is in the trace's slot of the control area.
    #[must_use]
    pub fn control_offset(&self, ring: u32) -> u64 {
        debug_assert!(ring < self.nr_rings);
        self.control + u64::from(ring) * u64::from(self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(scope: u32, mode: u32, protocol: u32) -> Result<Channel, ChannelError> {
        Channel::new(&LttInfoChannel {
            subbuf_size: 4096,
            subbuf_count: 2,
            nr_rings: 2,
            control_stride: 128,
            scope,
            mode,
            protocol,
            ..LttInfoChannel::default()
        })
    }

    /// Numbers of `linux/ltt.h`.
    #[test]
    fn what_a_channel_says_is_checked() {
        for (scope, want) in [
            (0, Scope::Cpu),
            (1, Scope::Thread),
            (2, Scope::Global),
            (3, Scope::MmCid),
        ] {
            assert_eq!(channel(scope, 0, 0).unwrap().scope(), want);
        }
        for (mode, want) in [(0, Mode::Discard), (1, Mode::Overwrite), (2, Mode::Block)] {
            assert_eq!(channel(0, mode, 0).unwrap().mode(), want);
        }
        for (protocol, want) in [(0, Protocol::Rseq), (1, Protocol::Shared)] {
            assert_eq!(channel(0, 0, protocol).unwrap().format().protocol, want);
        }
        assert_eq!(channel(4, 0, 0), Err(ChannelError::Scope(4)));
        assert_eq!(channel(0, 3, 0), Err(ChannelError::Mode(3)));
        assert_eq!(channel(0, 0, 2), Err(ChannelError::Protocol(2)));
    }
}
