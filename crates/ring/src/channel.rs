//! Channels: sets of rings with one size, mode, scope and protocol.

use usertrace_sys::uapi::{LttInfoChannel, LttRingControl};
use usertrace_sys::{Mode, Protocol, Scope};

use crate::geometry::MAX_POSITION;
use crate::{CountTable, Geometry, GeometryError, Positions};

/// Upper limit of rings in a channel. Linux supports no more CPUs.
pub const MAX_RINGS: u32 = 8192;

/// Why a channel cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Invalid ring size.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Too many rings.
    #[error("{0} rings are more than {MAX_RINGS}")]
    Rings(u32),
    /// Unknown protocol.
    #[error("protocol {0} is not known")]
    Protocol(u32),
    /// Unknown mode.
    #[error("mode {0} is not known")]
    Mode(u32),
    /// Unknown scope.
    #[error("scope {0} is not known")]
    Scope(u32),
    /// A channel that counts without tables, or tables in another channel.
    #[error("protocol {protocol}, mode {mode} and scope {scope} with cells of {cell_size} bytes")]
    Cells {
        /// The protocol.
        protocol: u32,
        /// The mode.
        mode: u32,
        /// The scope.
        scope: u32,
        /// Size of a cell in bytes.
        cell_size: u32,
    },
    /// Rings or control blocks that overflow the address space, overlap, or are misaligned.
    #[error("rings at {buffers:#x}, control blocks at {control:#x}, {stride} apart")]
    Layout {
        /// Offset of the first ring.
        buffers: u64,
        /// Offset of the first control block.
        control: u64,
        /// Distance between two control blocks.
        stride: u32,
    },
}

/// Layout and commit protocol of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Sizes of the ring and its sub-buffers.
    pub geometry: Geometry,
    /// Protocol by which writers commit records.
    pub protocol: Protocol,
}

impl Format {
    /// The start of the oldest sub-buffer that no writer has begun to overwrite. It does not depend
    /// on the mode, which may change at any time: a writer that discards only overwrites
    /// sub-buffers that were consumed.
    pub(super) fn valid_from(self, positions: Positions) -> u64 {
        let geometry = self.geometry;
        let head = positions.head.min(MAX_POSITION);
        let newest = geometry.subbuf_start(head.saturating_sub(1));
        // A new sub-buffer replaces the one a ring size below it. In an overwriting ring of
        // protocol `Rseq`, the writer raises `claimed` first. In a ring of protocol `Shared`, it
        // reserves first, by moving the head. The newest sub-buffer is never claimed.
        let claimed = geometry.subbuf_start(positions.claimed).min(newest);
        geometry.oldest(head).max(claimed)
    }
}

/// A channel: location, size, mode and scope of its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    format: Format,
    mode: Mode,
    scope: Scope,
    nr_rings: u32,
    buffers: u64,
    control: u64,
    stride: u32,
    table: Option<CountTable>,
}

impl Channel {
    /// Validates the kernel's description of a channel.
    ///
    /// # Errors
    /// If a size, a number or an offset is out of range, or a protocol, mode or scope is unknown.
    pub fn new(info: &LttInfoChannel) -> Result<Self, ChannelError> {
        let geometry = Geometry::new(info.subbuf_size, info.subbuf_count)?;
        if info.nr_rings > MAX_RINGS {
            return Err(ChannelError::Rings(info.nr_rings));
        }
        let protocol = [Protocol::Rseq, Protocol::Shared, Protocol::Count]
            .into_iter()
            .find(|protocol| *protocol as u32 == info.protocol)
            .ok_or(ChannelError::Protocol(info.protocol))?;
        let mode = Mode::from_number(info.mode).ok_or(ChannelError::Mode(info.mode))?;
        let scope = [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid]
            .into_iter()
            .find(|scope| *scope as u32 == info.scope)
            .ok_or(ChannelError::Scope(info.scope))?;
        let table = CountTable::new(geometry, info.cell_size);
        let counts = table.is_some() && scope == Scope::Cpu;
        let is_consistent = match (mode, protocol) {
            (Mode::Count, Protocol::Count) => counts,
            (Mode::Count, _) | (_, Protocol::Count) => false,
            _ => info.cell_size == 0,
        };
        if !is_consistent {
            return Err(ChannelError::Cells {
                protocol: info.protocol,
                mode: info.mode,
                scope: info.scope,
                cell_size: info.cell_size,
            });
        }
        let is_valid_range = |offset: u64, step: u64| {
            offset
                .checked_add(u64::from(info.nr_rings) * step)
                .is_some()
                && offset.is_multiple_of(8)
        };
        let stride = info.control_stride as usize;
        let stride_fits = stride.is_multiple_of(8)
            && (info.nr_rings <= 1 || stride >= size_of::<LttRingControl>());
        if !stride_fits
            || !is_valid_range(info.buffers_offset, geometry.ring_size())
            || !is_valid_range(info.control_offset, u64::from(info.control_stride))
        {
            return Err(ChannelError::Layout {
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
            table,
        })
    }

    /// The layout of its tables, if it counts.
    #[must_use]
    pub fn table(&self) -> Option<CountTable> {
        self.table
    }

    /// Sizes of each ring.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.format.geometry
    }

    /// Layout and protocol of each ring.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The mode that the kernel reported. It may have changed since.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The scope: which writers share a ring.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Number of rings.
    #[must_use]
    pub fn nr_rings(&self) -> u32 {
        self.nr_rings
    }

    /// Offset of `ring` in the trace's slot of the write area.
    #[must_use]
    pub fn ring_offset(&self, ring: u32) -> u64 {
        debug_assert!(ring < self.nr_rings);
        self.buffers + u64::from(ring) * self.geometry().ring_size()
    }

    /// Offset of the control block of `ring` in the trace's slot of the control area.
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

    /// The numbers are those of `linux/ltt.h`.
    #[test]
    fn channel_descriptions_are_validated() {
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
        assert_eq!(channel(0, 4, 0), Err(ChannelError::Mode(4)));
        assert_eq!(channel(0, 0, 3), Err(ChannelError::Protocol(3)));
    }

    /// A channel counts with everything that belongs to that, or not at all.
    #[test]
    fn tables_are_validated() {
        let channel = |scope, mode, protocol, cell_size| {
            Channel::new(&LttInfoChannel {
                subbuf_size: 4096,
                subbuf_count: 2,
                nr_rings: 1,
                control_stride: 128,
                scope,
                mode,
                protocol,
                cell_size,
                ..LttInfoChannel::default()
            })
        };
        for (cell_size, cells) in [(64, 128), (640, 12)] {
            let table = channel(0, 3, 2, cell_size).unwrap().table().unwrap();
            assert_eq!(
                (table.cells(), table.has_values()),
                (cells, cell_size == 640)
            );
        }
        assert_eq!(channel(0, 0, 0, 0).unwrap().table(), None);
        for (scope, mode, protocol, cell_size) in [
            (0, 3, 2, 0),
            (0, 3, 2, 128),
            (0, 3, 0, 64),
            (0, 0, 2, 64),
            (1, 3, 2, 64),
            (0, 0, 0, 64),
        ] {
            let error = channel(scope, mode, protocol, cell_size).unwrap_err();
            assert!(matches!(error, ChannelError::Cells { .. }), "{error}");
        }
    }
}
