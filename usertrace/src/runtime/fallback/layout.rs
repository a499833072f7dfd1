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
use usertrace_sys::limits::RULES_LEN;
use usertrace_sys::uapi::{
    LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN, LttInfo, LttInfoChannel, LttInfoFilter, LttInfoSlot,
    LttInfoTrace, LttRingControl,
};

use super::header::Header;
use super::journal;

/// A multiple of every page size that Linux has on this architecture.
#[cfg(target_arch = "x86_64")]
pub(super) const PAGE: usize = 4096;
#[cfg(not(target_arch = "x86_64"))]
pub(super) const PAGE: usize = 65536;

/// Offsets in the info area: its head and the slot, the trace with its channels, and the filter.
pub(super) const INFO_SLOT: usize = size_of::<LttInfo>();
pub(super) const INFO_TRACE: usize = 4096;
pub(super) const INFO_CHANNELS: usize = size_of::<LttInfoTrace>();
pub(super) const INFO_FILTER: usize = 2 * 4096;
const INFO_LEN: usize = 3 * 4096;
const _: () = assert!(INFO_SLOT + size_of::<LttInfoSlot>() <= INFO_TRACE);
const _: () = assert!(INFO_CHANNELS + CHANNELS * size_of::<LttInfoChannel>() <= 4096);
const _: () = assert!(size_of::<LttInfoFilter>() + RULES_LEN <= INFO_LEN - INFO_FILTER);
const STRIDE: usize = size_of::<LttRingControl>();
/// Number of channels of the trace.
pub(super) const CHANNELS: usize = 2;

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

/// Offsets of everything in the pool, from its start.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Layout {
    /// The control channel and the main channel.
    pub(super) channels: [Rings; CHANNELS],
    /// Number of slots.
    pub(super) slots: usize,
}

impl Layout {
    /// A layout; none if the sizes are invalid.
    pub(super) fn new(channels: [Rings; CHANNELS], slots: usize) -> Option<Self> {
        for rings in &channels {
            Geometry::new(rings.subbuf_size, rings.subbuf_count).ok()?;
        }
        Some(Self { channels, slots })
    }

    /// The largest layout with at most `slots` slots and these rings that fits into `len` bytes.
    ///
    /// If not even one slot fits, the larger rings shrink. None if the smallest rings do not fit.
    pub(super) fn within(channels: [Rings; CHANNELS], slots: usize, len: usize) -> Option<Self> {
        let mut layout = Self { channels, slots };
        while layout.len() > len {
            if layout.slots > 1 {
                layout.slots /= 2;
                continue;
            }
            let can_shrink = |rings: &&mut Rings| rings.halved().is_some();
            let larger = layout.channels.iter_mut().filter(can_shrink);
            let larger = larger.max_by_key(|rings| rings.ring_size() * rings.nr_rings as usize)?;
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
        journal::slot_len(self.channels[LTT_CHANNEL_MAIN].nr_rings).next_multiple_of(PAGE)
    }

    pub(super) fn journal_len(&self) -> usize {
        PAGE + self.slots * self.slot_journal_len()
    }

    pub(super) fn slot_journal(&self, slot: usize) -> usize {
        self.journal() + PAGE + slot * self.slot_journal_len()
    }

    fn nr_rings(&self) -> usize {
        self.channels.iter().map(|c| c.nr_rings as usize).sum()
    }

    pub(super) fn control_len(&self) -> usize {
        (self.nr_rings() * STRIDE).next_multiple_of(PAGE)
    }

    pub(super) fn buffers_len(&self) -> usize {
        let len = |rings: &Rings| rings.ring_size() * rings.nr_rings as usize;
        let len: usize = self.channels.iter().map(len).sum();
        len.next_multiple_of(PAGE)
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
        let rings = &self.channels[channel];
        let first = &self.channels[LTT_CHANNEL_CONTROL];
        let name: &[u8] = if channel == LTT_CHANNEL_CONTROL {
            b"control"
        } else {
            b"main"
        };
        let mut info = LttInfoChannel {
            subbuf_size: rings.subbuf_size,
            subbuf_count: rings.subbuf_count,
            nr_rings: rings.nr_rings,
            control_stride: STRIDE as u32,
            scope: rings.scope,
            mode: rings.mode,
            protocol: rings.protocol,
            ..LttInfoChannel::default()
        };
        info.name[..name.len()].copy_from_slice(name);
        if channel != LTT_CHANNEL_CONTROL {
            info.buffers_offset = (first.ring_size() * first.nr_rings as usize) as u64;
            info.control_offset = (STRIDE * first.nr_rings as usize) as u64;
        }
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
            let layout = Layout::new([rings(nr_rings), rings(nr_rings)], 3).unwrap();
            let mut parts = vec![
                (0, size_of::<Header>()),
                (layout.info(), layout.info_len()),
                (layout.journal(), PAGE),
            ];
            for slot in 0..3 {
                parts.push((layout.slot_journal(slot), journal::slot_len(nr_rings)));
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
            let [control, main] = [0, 1].map(|channel| layout.info_channel(channel));
            let end = |offset, step| offset + u64::from(nr_rings) * step;
            assert_eq!(end(control.buffers_offset, 16384), main.buffers_offset);
            let buffers_end = end(main.buffers_offset, 16384).next_multiple_of(PAGE as u64);
            assert_eq!(buffers_end, layout.buffers_len() as u64);
            assert_eq!(end(control.control_offset, 128), main.control_offset);
            assert!(end(main.control_offset, 128) <= layout.control_len() as u64);
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
        let whole = Layout::new(channels, 64).unwrap();
        let within = |len| Layout::within(channels, 64, len);
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
                assert!(room < Layout::new(smallest, 1).unwrap().len());
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
        assert!(Layout::new([rings(1), bad], 1).is_none());
    }
}
