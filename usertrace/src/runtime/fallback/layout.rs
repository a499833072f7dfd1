//! Layout of the pool.
//!
//! ```text
//! ┌────────┬──────┬──────┬─ slot 0 ─────────┬─ slot 1 ─────────┬─ …
//! │ header │ info │ journal │ control │ buffers│ control │ buffers│
//! └────────┴──────┴──────┴─────────┴────────┴─────────┴────────┴─ …
//! ```
//!
//! - The header: state that all processes and the daemons share.
//! - The info area, as in `linux/ltt.h`: written once, read-only in the program. All slots are
//!   alike.
//! - The journal: state of the daemons. Not accessible in the program.
//! - Slots: the areas of one process each. A process can access its own slot, daemons all of them.

use usertrace_ring::Geometry;
use usertrace_sys::limits::{self, RULES_LEN};
use usertrace_sys::uapi::{
    LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN, LTT_MODE_COUNT, LTT_PROTOCOL_COUNT, LTT_SCOPE_CPU,
    LttInfo, LttInfoChannel, LttInfoFilter, LttInfoSlot, LttInfoTrace, LttRingControl,
};

use super::header::Header;
use super::journal;

/// A multiple of every page size that Linux has on this architecture.
#[cfg(target_arch = "x86_64")]
pub(super) const PAGE: usize = 4096;
#[cfg(not(target_arch = "x86_64"))]
pub(super) const PAGE: usize = 65536;

/// Offsets in the info area: its head and the slot, the trace with its channels, and the filter.
/// There is one of each, so they are adjacent: with few channels and a short filter, all of it is
/// in one page.
pub(super) const INFO_SLOT: usize = size_of::<LttInfo>();
pub(super) const INFO_TRACE: usize = INFO_SLOT + size_of::<LttInfoSlot>();
pub(super) const INFO_CHANNELS: usize = size_of::<LttInfoTrace>();
pub(super) const INFO_TRACE_LEN: usize =
    INFO_CHANNELS + limits::CHANNELS * size_of::<LttInfoChannel>();
pub(super) const INFO_FILTER: usize = INFO_TRACE + INFO_TRACE_LEN;
pub(super) const INFO_FILTER_LEN: usize = size_of::<LttInfoFilter>() + RULES_LEN;
const INFO_LEN: usize = INFO_FILTER + INFO_FILTER_LEN;
const _: () = assert!(INFO_TRACE_LEN.is_multiple_of(8) && INFO_FILTER_LEN.is_multiple_of(8));
const STRIDE: usize = size_of::<LttRingControl>();
/// Channels with rings: control and main. Those that count follow.
pub(super) const CHANNELS: usize = 2;
/// The most channels that count.
pub(super) const TABLES: usize = limits::CHANNELS - CHANNELS;

/// Number, sizes and properties of a channel's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Rings {
    pub(super) subbuf_size: u32,
    pub(super) subbuf_count: u32,
    pub(super) nr_rings: u32,
    pub(super) scope: u32,
    pub(super) mode: u32,
    pub(super) protocol: u32,
}

impl Rings {
    /// Bytes in a ring.
    pub(super) fn ring_size(&self) -> usize {
        self.subbuf_size as usize * self.subbuf_count as usize
    }

    /// Rings of half the size: with fewer sub-buffers, or else with smaller ones. None below the
    /// smallest ring.
    fn halved(self) -> Option<Self> {
        let fewer = Self {
            subbuf_count: self.subbuf_count / 2,
            ..self
        };
        let smaller = Self {
            subbuf_size: self.subbuf_size / 2,
            ..self
        };
        let exists = |rings: &Self| Geometry::new(rings.subbuf_size, rings.subbuf_count).is_ok();
        [fewer, smaller].into_iter().find(exists)
    }
}

/// The channels that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Tables {
    /// The space of the tables of each channel.
    rings: Rings,
    /// The sizes of their cells; 0: there is no such channel, and none after it.
    cell_sizes: [u32; TABLES],
}

impl Tables {
    /// No channel counts.
    #[cfg(test)]
    pub(super) const NONE: Self = Self::new(0, [0; TABLES]);

    /// Tables for so many CPUs.
    pub(super) const fn new(nr_cpus: u32, cell_sizes: [u32; TABLES]) -> Self {
        Self {
            rings: Rings {
                // 1 MiB: 16384 cells, or 1638 with values. Memory is taken for those in use.
                subbuf_size: 65536,
                subbuf_count: 16,
                nr_rings: nr_cpus,
                scope: LTT_SCOPE_CPU,
                mode: LTT_MODE_COUNT,
                protocol: LTT_PROTOCOL_COUNT,
            },
            cell_sizes,
        }
    }

    /// Number of channels that count.
    pub(super) fn count(&self) -> usize {
        let sizes = self.cell_sizes.iter();
        sizes.take_while(|size| **size != 0).count()
    }

    /// The tables of each CPU.
    pub(super) fn nr_rings(&self) -> u32 {
        self.rings.nr_rings
    }

    /// Number of all tables.
    fn nr_tables(&self) -> usize {
        self.count() * self.rings.nr_rings as usize
    }
}

/// Offsets of everything in the pool, from its start.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Layout {
    /// The control channel and the main channel.
    pub(super) channels: [Rings; CHANNELS],
    /// The channels behind these.
    pub(super) tables: Tables,
    /// Number of slots.
    pub(super) slots: usize,
}

impl Layout {
    /// A layout; none if the sizes are invalid.
    pub(super) fn new(channels: [Rings; CHANNELS], tables: Tables, slots: usize) -> Option<Self> {
        for rings in &channels {
            Geometry::new(rings.subbuf_size, rings.subbuf_count).ok()?;
        }
        Some(Self {
            channels,
            tables,
            slots,
        })
    }

    /// The largest layout with at most as many slots, and these rings, that fits into `len` bytes.
    ///
    /// If not even one slot fits, the larger rings shrink. None if the smallest rings do not fit.
    pub(super) fn within(self, len: usize) -> Option<Self> {
        let mut layout = self;
        while layout.len() > len {
            if layout.slots > 1 {
                layout.slots /= 2;
                continue;
            }
            let tables = layout.tables.count();
            let all = (layout.channels.iter_mut().map(|rings| (rings, 1)))
                .chain([(&mut layout.tables.rings, tables)]);
            let larger = all.filter(|(rings, count)| *count > 0 && rings.halved().is_some());
            let size = |(rings, count): &(&mut Rings, usize)| {
                rings.ring_size() * rings.nr_rings as usize * count
            };
            let (larger, _) = larger.max_by_key(size)?;
            *larger = larger.halved()?;
        }
        Some(layout)
    }

    pub(super) fn info(&self) -> usize {
        size_of::<Header>().next_multiple_of(PAGE)
    }

    pub(super) fn info_len(&self) -> usize {
        INFO_LEN.next_multiple_of(PAGE)
    }

    pub(super) fn journal(&self) -> usize {
        self.info() + self.info_len()
    }

    /// Bytes of the journal of one slot.
    pub(super) fn slot_journal_len(&self) -> usize {
        let rings = self.channels[LTT_CHANNEL_MAIN].nr_rings as usize;
        journal::slot_len(rings + self.tables.nr_tables()).next_multiple_of(PAGE)
    }

    pub(super) fn journal_len(&self) -> usize {
        PAGE + self.slots * self.slot_journal_len()
    }

    pub(super) fn slot_journal(&self, slot: usize) -> usize {
        self.journal() + PAGE + slot * self.slot_journal_len()
    }

    /// Number of channels.
    pub(super) fn nr_channels(&self) -> usize {
        CHANNELS + self.tables.count()
    }

    /// The rings of a channel, or the space of its tables.
    pub(super) fn rings(&self, channel: usize) -> &Rings {
        self.channels.get(channel).unwrap_or(&self.tables.rings)
    }

    /// Rings and tables of the channels before this one.
    fn nr_rings_before(&self, channel: usize) -> usize {
        let rings = (0..channel).map(|channel| self.rings(channel).nr_rings as usize);
        rings.sum()
    }

    /// Bytes of rings and tables of the channels before this one.
    fn len_before(&self, channel: usize) -> usize {
        let len = |rings: &Rings| rings.ring_size() * rings.nr_rings as usize;
        (0..channel).map(|channel| len(self.rings(channel))).sum()
    }

    pub(super) fn control_len(&self) -> usize {
        (self.nr_rings_before(self.nr_channels()) * STRIDE).next_multiple_of(PAGE)
    }

    pub(super) fn buffers_len(&self) -> usize {
        self.len_before(self.nr_channels()).next_multiple_of(PAGE)
    }

    pub(super) fn slot_len(&self) -> usize {
        self.control_len() + self.buffers_len()
    }

    pub(super) fn slot(&self, slot: usize) -> usize {
        self.journal() + self.journal_len() + slot * self.slot_len()
    }

    pub(super) fn len(&self) -> usize {
        self.slot(self.slots)
    }

    /// A channel as the info area describes it.
    pub(super) fn info_channel(&self, channel: usize) -> LttInfoChannel {
        let rings = self.rings(channel);
        let name = match channel {
            LTT_CHANNEL_CONTROL => "control".to_owned(),
            LTT_CHANNEL_MAIN => "main".to_owned(),
            table => format!("count{}", table - CHANNELS),
        };
        let table = channel.checked_sub(CHANNELS);
        let cell_size = table.and_then(|table| self.tables.cell_sizes.get(table));
        let mut info = LttInfoChannel {
            buffers_offset: self.len_before(channel) as u64,
            control_offset: (self.nr_rings_before(channel) * STRIDE) as u64,
            cell_size: cell_size.copied().unwrap_or(0),
            // Of channels that count: all log levels.
            filter: if table.is_some() { u32::MAX } else { 0 },
            subbuf_size: rings.subbuf_size,
            subbuf_count: rings.subbuf_count,
            nr_rings: rings.nr_rings,
            control_stride: STRIDE as u32,
            scope: rings.scope,
            mode: rings.mode,
            protocol: rings.protocol,
            ..LttInfoChannel::default()
        };
        info.name[..name.len()].copy_from_slice(name.as_bytes());
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(nr_rings: u32) -> Rings {
        Rings {
            subbuf_size: 4096,
            subbuf_count: 4,
            nr_rings,
            scope: 0,
            mode: 0,
            protocol: 0,
        }
    }

    #[test]
    fn nothing_overlaps() {
        for nr_rings in [1, 2, 31, 256, 8192] {
            let rings = rings(nr_rings);
            let mut cell_sizes = [0; TABLES];
            cell_sizes[..2].copy_from_slice(&[64, 640]);
            let tables = Tables::new(nr_rings, cell_sizes);
            let layout = Layout::new([rings, rings], tables, 3).unwrap();
            let mut parts = vec![
                (0, size_of::<Header>()),
                (layout.info(), layout.info_len()),
                (layout.journal(), PAGE),
            ];
            for slot in 0..3 {
                let len = journal::slot_len(3 * nr_rings as usize);
                parts.push((layout.slot_journal(slot), len));
            }
            for slot in 0..3 {
                parts.push((layout.slot(slot), layout.control_len()));
                let buffers = layout.slot(slot) + layout.control_len();
                parts.push((buffers, layout.buffers_len()));
            }
            parts.push((layout.len(), 0));
            for pair in parts.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
                assert_eq!(pair[1].0 % PAGE, 0);
            }
            assert_eq!(layout.nr_channels(), 4);
            let (mut buffers, mut control) = (0, 0);
            for (channel, (size, cell_size)) in
                [(16384, 0), (16384, 0), (1 << 20, 64), (1 << 20, 640)]
                    .into_iter()
                    .enumerate()
            {
                let info = layout.info_channel(channel);
                assert_eq!(
                    (info.buffers_offset, info.control_offset),
                    (buffers, control)
                );
                assert_eq!(info.cell_size, cell_size);
                buffers += u64::from(nr_rings) * size;
                control += u64::from(nr_rings) * 128;
            }
            assert_eq!(layout.info_channel(3).name[..7], *b"count1\0");
            assert_eq!(
                buffers.next_multiple_of(PAGE as u64),
                layout.buffers_len() as u64
            );
            assert!(control <= layout.control_len() as u64);
        }
    }

    #[test]
    fn a_layout_shrinks_to_the_room_that_it_has() {
        let large = Rings {
            subbuf_size: 65536,
            subbuf_count: 16,
            ..rings(2)
        };
        let channels = [large, large];
        let mut cell_sizes = [0; TABLES];
        cell_sizes[0] = 64;
        let whole = Layout::new(channels, Tables::new(2, cell_sizes), 64).unwrap();
        let within = |len| whole.within(len);
        assert_eq!(within(usize::MAX).unwrap().len(), whole.len());
        let mut before = whole.len();
        for shift in 0..16 {
            let room = whole.len() >> shift;
            let Some(layout) = within(room) else {
                // The smallest rings there are, for one process.
                let smallest = [rings(2); 2].map(|rings| Rings {
                    subbuf_count: 2,
                    ..rings
                });
                let mut tables = Tables::new(2, cell_sizes);
                while let Some(rings) = tables.rings.halved() {
                    tables.rings = rings;
                }
                assert!(room < Layout::new(smallest, tables, 1).unwrap().len());
                return;
            };
            assert!(layout.len() <= room && layout.len() <= before);
            // Rings do not shrink as long as there is more than one slot.
            assert!(layout.slots == 1 || layout.channels == channels);
            before = layout.len();
        }
        unreachable!("every room is enough");
    }

    #[test]
    fn bad_sizes_are_refused() {
        let bad = Rings {
            subbuf_size: 5000,
            ..rings(1)
        };
        assert!(Layout::new([rings(1), bad], Tables::NONE, 1).is_none());
    }
}
