//! The memory that a program, the processes that it forks, and the daemons share.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use syscalls::Errno;
use usertrace_ring::SharedBytes;
use usertrace_sys::filter::Filter;
use usertrace_sys::limits::RULES_LEN;
use usertrace_sys::uapi::{
    LTT_ABI_VERSION, LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN, LTT_INFO_MAGIC, LttInfo,
    LttInfoChannel, LttInfoFilter, LttInfoSlot, LttInfoTrace, LttRingControl,
};
use zerocopy::IntoBytes;

use super::header::Header;
use super::journal::{Journal, RingCheckpoint, SlotJournal};
use super::layout::Layout;
use crate::os::memory;

/// A mapping that stays as long as the process.
///
/// All of it starts without any access, and parts are opened: what nobody uses must not be
/// populated by `mlockall`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Pool {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: memory that is shared between processes anyway; it is accessed through atomics.
unsafe impl Send for Pool {}
// SAFETY: likewise.
unsafe impl Sync for Pool {}

/// Changes the access rights of a range of a pool.
fn protect(start: *mut u8, len: usize, protection: libc::c_int) -> Result<(), Errno> {
    // SAFETY: callers pass ranges of a pool. References into a range are made only where this
    // process keeps access, see `Pool::get`.
    unsafe { memory::protect(start, len, protection) }
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

impl Pool {
    /// A new pool, with everything but the other slots open.
    pub(super) fn map(layout: Layout) -> Result<Self, Errno> {
        // SAFETY: a new mapping.
        let start = unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                layout.len(),
                libc::PROT_NONE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if start == libc::MAP_FAILED {
                return Err(Errno::ENOMEM);
            }
            // A core dump of the program has what it would have without.
            libc::madvise(start, layout.len(), libc::MADV_DONTDUMP);
            start
        };
        let pool = Self {
            start: NonNull::new(start.cast()).ok_or(Errno::ENOMEM)?,
            layout,
        };
        let opened = protect(pool.at(0), layout.slot(1), READ_WRITE);
        if opened.is_err() {
            // SAFETY: nobody knows of it yet.
            unsafe { pool.unmap() };
        }
        opened.map(|()| pool)
    }

    /// Takes the mapping back.
    ///
    /// # Safety
    /// Nobody may use it any more, or a copy of this.
    pub(super) unsafe fn unmap(self) {
        // SAFETY: it is this pool's mapping, and nobody uses it, as this function's caller
        // promises.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.layout.len()) };
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where it begins, in this process and in all that were forked from the one that made it.
    pub(super) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }

    /// # Safety
    /// A `T` at that offset must be inside a part that this process can access, be aligned, and be
    /// all atomic.
    unsafe fn get<T>(&self, offset: usize) -> &'static T {
        // SAFETY: a `T` of atomics lies there, as this function's caller promises; the mapping
        // stays.
        unsafe { &*self.at(offset).cast::<T>() }
    }

    pub(super) fn header(&self) -> &'static Header {
        // SAFETY: the layout begins with it, and it is always open.
        unsafe { self.get(0) }
    }

    /// Writes the info area, before anybody reads it.
    pub(super) fn write_info(&self, trace: &LttInfoTrace, nr_cpus: u32, filter: &Filter) {
        use super::layout::{CHANNELS, INFO_CHANNELS, INFO_FILTER, INFO_SLOT, INFO_TRACE};
        let info = LttInfo {
            magic: LTT_INFO_MAGIC,
            version: LTT_ABI_VERSION,
            size: size_of::<LttInfo>() as u32,
            generation: trace.generation,
            active: 1,
            nr_cpus,
            nr_slots: 1,
            nr_channels: CHANNELS as u32,
            slot_offset: INFO_SLOT as u32,
            slot_stride: size_of::<LttInfoSlot>() as u32,
            trace_offset: INFO_TRACE as u32,
            trace_stride: 4096,
            filter_offset: INFO_FILTER as u32,
            filter_stride: 4096,
            channel_offset: INFO_CHANNELS as u32,
            channel_stride: size_of::<LttInfoChannel>() as u32,
            rules_size: RULES_LEN as u32,
            ..LttInfo::default()
        };
        let slot = LttInfoSlot {
            generation: trace.generation,
            active: 1,
            filter: u32::MAX,
            nr_channels: CHANNELS as u32,
            ..LttInfoSlot::default()
        };
        let head = LttInfoFilter {
            generation: trace.generation,
            len: filter.rules().len() as u32,
            reserved: 0,
        };
        let channels = [LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN]
            .map(|channel| self.layout.info_channel(channel));
        let area = self.at(self.layout.info());
        for (offset, bytes) in [
            (0, info.as_bytes()),
            (INFO_SLOT, slot.as_bytes()),
            (INFO_TRACE, trace.as_bytes()),
            (INFO_TRACE + INFO_CHANNELS, channels.as_bytes()),
            (INFO_FILTER, head.as_bytes()),
            (INFO_FILTER + size_of::<LttInfoFilter>(), filter.rules()),
        ] {
            // SAFETY: the area has room for all, as `layout` asserts, and nobody else knows of it
            // yet.
            unsafe {
                area.add(offset)
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
    }

    /// Copies the rules that [`Self::write_info`] wrote, behind those that are there.
    pub(super) fn copy_rules(&self, filter: &mut Filter) {
        let area = self.info().wrapping_add(super::layout::INFO_FILTER);
        // SAFETY: `write_info` wrote both there, aligned and as a whole, and nobody writes there
        // afterwards.
        let bytes = unsafe {
            let head = area.cast::<LttInfoFilter>().read();
            let start = area.add(size_of::<LttInfoFilter>());
            std::slice::from_raw_parts(start, (head.len as usize).min(RULES_LEN))
        };
        // Its one caller has an empty one.
        let _ = filter.append(bytes);
    }

    /// Address of the info area.
    pub(super) fn info(&self) -> *mut u8 {
        self.at(self.layout.info())
    }

    /// Takes from the program what it need not touch: to be done when the daemons have their copy
    /// of the mapping.
    pub(super) fn restrict(&self) {
        // If it cannot be done, all works nevertheless.
        let _ = protect(self.info(), self.layout.info_len(), libc::PROT_READ);
        let journal = self.at(self.layout.journal());
        let _ = protect(journal, self.layout.journal_len(), libc::PROT_NONE);
    }

    /// Opens everything: for the daemons.
    pub(super) fn open_all(&self) -> Result<(), Errno> {
        protect(self.at(0), self.layout.len(), READ_WRITE)
    }

    /// Opens a slot, for the process that has claimed it.
    pub(super) fn open_slot(&self, slot: usize) -> Result<(), Errno> {
        protect(self.slot(slot), self.layout.slot_len(), READ_WRITE)
    }

    /// Puts private memory where a slot was, so that whatever this process still writes there harms
    /// nobody (A5).
    ///
    /// Not just a mapping without access: a signal handler that interrupted an event may have
    /// forked, and the child goes on in the middle of that event with its parent's addresses.
    pub(super) fn detach_slot(&self, slot: usize) {
        let (start, len) = (self.slot(slot), self.layout.slot_len());
        // SAFETY: a part of the pool, which this process only writes to by mistake from now on.
        if unsafe { memory::replace_by_zeros(start, len) }.is_err() {
            let _ = protect(start, len, libc::PROT_NONE);
        }
    }

    fn slot(&self, slot: usize) -> *mut u8 {
        self.at(self.layout.slot(slot))
    }

    /// Address of a slot's control area.
    pub(super) fn control(&self, slot: usize) -> *mut u8 {
        self.slot(slot)
    }

    /// Address of a slot's write area.
    pub(super) fn buffers(&self, slot: usize) -> *mut u8 {
        self.slot(slot).wrapping_add(self.layout.control_len())
    }

    /// Makes pages of a ring, from one position in its first lap to another: who writes there next
    /// need not wait for that. Nothing becomes of it if the kernel cannot do that (before Linux
    /// 5.14), or has no memory.
    pub(super) fn populate(&self, slot: usize, channel: usize, ring: u32, made: Range<u64>) {
        let at = self.ring_start(slot, channel, ring);
        let (start, end) = (at + made.start as usize, at + made.end as usize);
        memory::populate_write(self.at(start), end - start);
    }

    /// Makes a slot as if nobody ever wrote there, and gives its memory back.
    pub(super) fn wipe(&self, slot: usize) -> std::io::Result<()> {
        let slot_journal = self.at(self.layout.slot_journal(slot));
        let areas = [
            (self.slot(slot), self.layout.slot_len()),
            (slot_journal, self.layout.slot_journal_len()),
        ];
        for (start, len) in areas {
            // SAFETY: of this pool; readers take zeros for what they are.
            if unsafe { libc::madvise(start.cast(), len, libc::MADV_REMOVE) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// The daemons' own part: to be called by them only.
    pub(super) fn journal(&self) -> &'static Journal {
        // SAFETY: the layout has it there, and the daemons can access it.
        unsafe { self.get(self.layout.journal()) }
    }

    /// Likewise.
    pub(super) fn slot_journal(&self, slot: usize) -> &'static SlotJournal {
        assert!(slot < self.layout.slots);
        // SAFETY: as above.
        unsafe { self.get(self.layout.slot_journal(slot)) }
    }

    /// Likewise.
    pub(super) fn checkpoint(&self, slot: usize, ring: u32) -> &'static RingCheckpoint {
        let main = &self.layout.channels[LTT_CHANNEL_MAIN];
        assert!(slot < self.layout.slots && ring < main.nr_rings);
        let offset = size_of::<SlotJournal>() + ring as usize * size_of::<RingCheckpoint>();
        // SAFETY: as above; `journal::slot_len` has room for so many rings.
        unsafe { self.get(self.layout.slot_journal(slot) + offset) }
    }

    /// The control block of a ring.
    pub(super) fn ring_control(&self, slot: usize, channel: usize, ring: u32) -> RingControl {
        assert!(slot < self.layout.slots && ring < self.layout.channels[channel].nr_rings);
        let info = self.layout.info_channel(channel);
        let offset = info.control_offset as usize + ring as usize * info.control_stride as usize;
        RingControl(self.control(slot).wrapping_add(offset))
    }

    /// The bytes of a ring.
    pub(super) fn ring(&self, slot: usize, channel: usize, ring: u32) -> SharedBytes<'static> {
        let at = self.ring_start(slot, channel, ring);
        let len = self.layout.channels[channel].ring_size();
        // SAFETY: in the slot, which the daemons have open for ever, at a multiple of 8; they do
        // not write there.
        unsafe { SharedBytes::new(self.start.add(at), len) }
    }

    /// Where a ring's bytes are in the pool.
    fn ring_start(&self, slot: usize, channel: usize, ring: u32) -> usize {
        let rings = &self.layout.channels[channel];
        assert!(slot < self.layout.slots && ring < rings.nr_rings);
        let info = self.layout.info_channel(channel);
        let offset = info.buffers_offset as usize + ring as usize * rings.ring_size();
        self.layout.slot(slot) + self.layout.control_len() + offset
    }
}

/// A ring's control block in a slot that this process can access.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingControl(*mut u8);

macro_rules! field {
    ($name:ident: $type:ty) => {
        pub(super) fn $name(&self) -> &$type {
            // SAFETY: `Pool::ring_control` made the address; everything in a control block is
            // accessed as an atomic.
            unsafe {
                &*self
                    .0
                    .add(std::mem::offset_of!(LttRingControl, $name))
                    .cast()
            }
        }
    };
}

impl RingControl {
    field!(head: AtomicU64);
    field!(lost: AtomicU64);
    field!(claimed: AtomicU64);
    field!(consumed: AtomicU64);
    field!(owner: AtomicU32);
    field!(waiters: AtomicU32);
}
