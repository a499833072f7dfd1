//! The pool: memory that a program, the processes that it forks, and the daemons share.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use syscalls::Errno;
use usertrace_ring::SharedBytes;
use usertrace_sys::filter::Filter;
use usertrace_sys::limits::RULES_LEN;
use usertrace_sys::uapi::{
    LTT_ABI_VERSION, LTT_CHANNEL_MAIN, LTT_INFO_MAGIC, LttInfo, LttInfoChannel, LttInfoFilter,
    LttInfoSlot, LttInfoTrace, LttRingControl,
};
use zerocopy::IntoBytes;

use super::header::Header;
use super::journal::{Journal, RingCheckpoint, SlotJournal};
use super::layout::{CHANNELS, Layout};
use crate::os::memory;

/// The mapping of the pool, which stays as long as the process.
///
/// At first no part is accessible, and each process opens the parts that it uses. So `mlockall`
/// does not populate the others.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Pool {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: processes share the memory, and access it through atomics.
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
    /// Maps a new pool. All of it but the slots from 1 on is accessible.
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
            // The pool must not make the program's core dumps larger.
            libc::madvise(start, layout.len(), libc::MADV_DONTDUMP);
            start
        };
        let pool = Self {
            start: NonNull::new(start.cast()).ok_or(Errno::ENOMEM)?,
            layout,
        };
        let opened = protect(pool.at(0), layout.slot(1), READ_WRITE);
        if opened.is_err() {
            // SAFETY: no other code has the address yet.
            unsafe { pool.unmap() };
        }
        opened.map(|()| pool)
    }

    /// Unmaps the pool.
    ///
    /// # Safety
    /// No code may use this, or a copy of it, afterwards.
    pub(super) unsafe fn unmap(self) {
        // SAFETY: the mapping of this pool, which no code uses any more, as this function's caller
        // promises.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.layout.len()) };
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Address of the pool: the same in all processes that share it.
    pub(super) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }

    /// The `T` at an offset.
    ///
    /// # Safety
    /// A `T` at that offset must be inside a part that this process can access, be aligned, and be
    /// all atomic.
    unsafe fn get<T>(&self, offset: usize) -> &'static T {
        // SAFETY: a `T` of atomics lies there, as this function's caller promises. The mapping
        // stays as long as the process.
        unsafe { &*self.at(offset).cast::<T>() }
    }

    /// The header of the pool.
    pub(super) fn header(&self) -> &'static Header {
        // SAFETY: the pool begins with it, and it is always accessible.
        unsafe { self.get(0) }
    }

    /// Writes the info area, before any other code reads it.
    pub(super) fn write_info(&self, trace: &LttInfoTrace, nr_cpus: u32, filter: &Filter) {
        use super::layout::{
            INFO_CHANNELS, INFO_FILTER, INFO_FILTER_LEN, INFO_SLOT, INFO_TRACE, INFO_TRACE_LEN,
        };
        let nr_channels = self.layout.nr_channels();
        let info = LttInfo {
            magic: LTT_INFO_MAGIC,
            version: LTT_ABI_VERSION,
            size: size_of::<LttInfo>() as u32,
            generation: trace.generation,
            active: 1,
            nr_cpus,
            nr_slots: 1,
            nr_channels: nr_channels as u32,
            slot_offset: INFO_SLOT as u32,
            slot_stride: size_of::<LttInfoSlot>() as u32,
            trace_offset: INFO_TRACE as u32,
            trace_stride: INFO_TRACE_LEN as u32,
            filter_offset: INFO_FILTER as u32,
            filter_stride: INFO_FILTER_LEN as u32,
            channel_offset: INFO_CHANNELS as u32,
            channel_stride: size_of::<LttInfoChannel>() as u32,
            rules_size: RULES_LEN as u32,
            ..LttInfo::default()
        };
        let slot = LttInfoSlot {
            generation: trace.generation,
            active: 1,
            filter: u32::MAX,
            nr_channels: nr_channels as u32,
            ..LttInfoSlot::default()
        };
        let head = LttInfoFilter {
            generation: trace.generation,
            len: filter.rules().len() as u32,
            reserved: 0,
        };
        let channels = (0..nr_channels).map(|channel| self.layout.info_channel(channel));
        let channels: Vec<LttInfoChannel> = channels.collect();
        let area = self.at(self.layout.info());
        for (offset, bytes) in [
            (0, info.as_bytes()),
            (INFO_SLOT, slot.as_bytes()),
            (INFO_TRACE, trace.as_bytes()),
            (INFO_TRACE + INFO_CHANNELS, channels.as_bytes()),
            (INFO_FILTER, head.as_bytes()),
            (INFO_FILTER + size_of::<LttInfoFilter>(), filter.rules()),
        ] {
            // SAFETY: the area has room for all, as `layout` asserts, and no other code has the
            // address yet.
            unsafe {
                area.add(offset)
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
    }

    /// Appends the rules that [`Self::write_info`] wrote to a filter.
    pub(super) fn copy_rules(&self, filter: &mut Filter) {
        let area = self.info().wrapping_add(super::layout::INFO_FILTER);
        // SAFETY: `write_info` wrote both there, aligned and complete, and no code writes there
        // afterwards.
        let bytes = unsafe {
            let head = area.cast::<LttInfoFilter>().read();
            let start = area.add(size_of::<LttInfoFilter>());
            std::slice::from_raw_parts(start, (head.len as usize).min(RULES_LEN))
        };
        // It has room: the filter of the only caller is empty.
        let _ = filter.append(bytes);
    }

    /// Address of the info area.
    pub(super) fn info(&self) -> *mut u8 {
        self.at(self.layout.info())
    }

    /// Makes parts inaccessible that the program does not need, after the fork of the daemons.
    pub(super) fn restrict(&self) {
        // If that fails, everything works nevertheless.
        let _ = protect(self.info(), self.layout.info_len(), libc::PROT_READ);
        let journal = self.at(self.layout.journal());
        let _ = protect(journal, self.layout.journal_len(), libc::PROT_NONE);
    }

    /// Makes everything accessible, for the daemons.
    pub(super) fn open_all(&self) -> Result<(), Errno> {
        protect(self.at(0), self.layout.len(), READ_WRITE)
    }

    /// Makes a slot accessible, for the process that has claimed it.
    pub(super) fn open_slot(&self, slot: usize) -> Result<(), Errno> {
        protect(self.slot(slot), self.layout.slot_len(), READ_WRITE)
    }

    /// Detaches this process from a slot: puts private memory in its place, so that late writes of
    /// this process harm no other one (A5).
    ///
    /// It must stay writable: a signal handler that interrupted an event may have forked. The child
    /// continues that event with its parent's addresses.
    pub(super) fn detach_slot(&self, slot: usize) {
        let (start, len) = (self.slot(slot), self.layout.slot_len());
        // SAFETY: a part of the pool. This process only stores there from now on, in an interrupted
        // event.
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

    /// Populates the pages of a ring between two positions in its first lap, so that writers need
    /// not wait for page faults. Nothing happens if the kernel cannot do that (before Linux 5.14),
    /// or has no memory.
    pub(super) fn populate(&self, slot: usize, channel: usize, ring: u32, made: Range<u64>) {
        let at = self.ring_start(slot, channel, ring);
        let (start, end) = (at + made.start as usize, at + made.end as usize);
        memory::populate_write(self.at(start), end - start);
    }

    /// Zeroes a slot and its journal, and frees their memory.
    pub(super) fn wipe(&self, slot: usize) -> std::io::Result<()> {
        let slot_journal = self.at(self.layout.slot_journal(slot));
        let areas = [
            (self.slot(slot), self.layout.slot_len()),
            (slot_journal, self.layout.slot_journal_len()),
        ];
        for (start, len) in areas {
            // SAFETY: a part of this pool. Zeros are valid for all structures in it.
            if unsafe { libc::madvise(start.cast(), len, libc::MADV_REMOVE) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// The journal. For daemons only.
    pub(super) fn journal(&self) -> &'static Journal {
        // SAFETY: the layout has the journal there, and daemons can access it.
        unsafe { self.get(self.layout.journal()) }
    }

    /// The journal of a slot. For daemons only.
    pub(super) fn slot_journal(&self, slot: usize) -> &'static SlotJournal {
        assert!(slot < self.layout.slots);
        // SAFETY: as in `journal`.
        unsafe { self.get(self.layout.slot_journal(slot)) }
    }

    /// The checkpoint of a ring of the main channel. For daemons only.
    pub(super) fn checkpoint(&self, slot: usize, ring: u32) -> &'static RingCheckpoint {
        let main = self.layout.rings(LTT_CHANNEL_MAIN);
        assert!(ring < main.nr_rings);
        self.checkpoint_at(slot, ring as usize)
    }

    /// The checkpoint of a table of a channel that counts. For daemons only.
    pub(super) fn table_checkpoint(
        &self,
        slot: usize,
        channel: usize,
        ring: u32,
    ) -> &'static RingCheckpoint {
        let nr_rings = self.layout.rings(channel).nr_rings;
        assert!((CHANNELS..self.layout.nr_channels()).contains(&channel) && ring < nr_rings);
        let before = self.layout.rings(LTT_CHANNEL_MAIN).nr_rings as usize;
        let tables = (channel - CHANNELS) * nr_rings as usize + ring as usize;
        self.checkpoint_at(slot, before + tables)
    }

    fn checkpoint_at(&self, slot: usize, index: usize) -> &'static RingCheckpoint {
        assert!(slot < self.layout.slots);
        let offset = size_of::<SlotJournal>() + index * size_of::<RingCheckpoint>();
        // SAFETY: as in `journal`; `journal::slot_len` has room for all rings.
        unsafe { self.get(self.layout.slot_journal(slot) + offset) }
    }

    /// The control block of a ring.
    pub(super) fn ring_control(&self, slot: usize, channel: usize, ring: u32) -> RingControl {
        assert!(slot < self.layout.slots && ring < self.layout.rings(channel).nr_rings);
        let info = self.layout.info_channel(channel);
        let offset = info.control_offset as usize + ring as usize * info.control_stride as usize;
        RingControl(self.control(slot).wrapping_add(offset))
    }

    /// The bytes of a ring.
    pub(super) fn ring(&self, slot: usize, channel: usize, ring: u32) -> SharedBytes<'static> {
        let at = self.ring_start(slot, channel, ring);
        let len = self.layout.rings(channel).ring_size();
        // SAFETY: in the slot, which daemons can always access, at a multiple of 8. Daemons do not
        // write there.
        unsafe { SharedBytes::new(self.start.add(at), len) }
    }

    /// Offset of a ring's bytes in the pool.
    fn ring_start(&self, slot: usize, channel: usize, ring: u32) -> usize {
        let rings = self.layout.rings(channel);
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
            // SAFETY: `Pool::ring_control` made the address. All code accesses fields of a control
            // block as atomics.
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
