//! A channel as writers see it: where its rings are, and how to write to them.

use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use usertrace_sys::uapi::{
    LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE, LTT_ID_MAX, LTT_ID_MIN, LttRingControl, LttSubbuf,
};
use usertrace_sys::{Mode, Protocol, Scope};

use super::prefault::{self, Prefault};
use super::quiescence::{ReadSideGuard, Readers};
use super::remembered::Remembered;
use super::ring_index::{
    CPU_ID, CPU_ID_OF_TABLE, CPU_ID_WITH_CONTEXT, MAX_RINGS, MM_CID, MM_CID_WITH_CONTEXT,
};
use super::wakeup::{ReaderWakeup, WakeupMethod};
use crate::clock::Source;
use crate::os;
use crate::unwind::Walks;

/// Length of the longest record that each channel can take, with its header: a metadata record.
pub(crate) const LONGEST: u64 = 8 + usertrace_sys::uapi::LTT_META_MAX as u64;

/// How many bytes ahead of a record the writer prefetches the ring for stores.
pub(super) const AHEAD: u64 = 512;

/// Addresses, sizes and properties of a channel's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Start of ring 0.
    pub buffers: *mut u8,
    /// Ring 0's control block.
    pub control: *mut u8,
    /// Bytes from one control block to the next.
    pub control_stride: u64,
    /// A power of two.
    pub subbuf_size: u64,
    /// A power of two.
    pub subbuf_count: u64,
    /// [`Scope::Cpu`], [`Scope::MmCid`]: one for each CPU. [`Scope::Global`]: 1.
    pub nr_rings: u32,
    /// The CPU, thread or process that a ring belongs to.
    pub scope: Scope,
    /// What writers do when a ring is full.
    pub mode: Mode,
    /// How records are committed.
    pub protocol: Protocol,
    /// How writers wake readers, and so how they wait for room.
    pub wakeup: WakeupMethod,
    /// When writers populate the pages of the rings.
    pub prefault: Prefault,
    /// Size of a cell of a table, [`Protocol::Count`]; 0: there are rings.
    pub cell_size: u32,
    /// Payloads begin with contexts: the event path does not know of these rings.
    pub contexts: bool,
    /// The clock of the records. If it is not the processor's counter, the event path does not know
    /// of these rings, either.
    pub clock: Source,
    /// Where writers of the shared protocol announce themselves. None if the channel is never
    /// closed before all of them have left.
    pub quiescence: Option<QuiescenceSlot>,
}

/// Where writers of a channel announce that they are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuiescenceSlot {
    /// The table of the process. It must stay mapped as long as the rings.
    pub readers: NonNull<Readers>,
    /// The trace slot of the channel.
    pub slot: u32,
}

/// The geometry of a channel breaks a rule that the writers' arithmetic relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GeometryError;

impl Geometry {
    /// Bytes in a ring.
    #[must_use]
    pub(crate) fn ring_size(&self) -> u64 {
        self.subbuf_size * self.subbuf_count
    }

    /// Checks the rules that the writers' arithmetic relies on.
    fn check(&self) -> Result<(), GeometryError> {
        let good = self.subbuf_size.is_power_of_two()
            && self.subbuf_count.is_power_of_two()
            && self.subbuf_count >= 2
            && self.subbuf_size >= LONGEST + size_of::<LttSubbuf>() as u64
            && self
                .subbuf_size
                .checked_mul(self.subbuf_count)
                .is_some_and(|size| size <= 1 << 31)
            && self.control_stride >= size_of::<LttRingControl>() as u64
            && self.control_stride.is_multiple_of(8)
            && self.buffers.addr().is_multiple_of(8)
            && self.control.addr().is_multiple_of(8)
            && self.nr_rings > 0
            && self.nr_rings <= MAX_RINGS
            && match self.scope {
                Scope::Cpu => true,
                Scope::MmCid => self.protocol == Protocol::Rseq,
                Scope::Thread | Scope::Global => self.protocol == Protocol::Shared,
            }
            && match self.protocol {
                Protocol::Rseq | Protocol::Shared => self.cell_size == 0,
                // The smallest ring has more than two cells.
                Protocol::Count => {
                    [LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE].contains(&self.cell_size)
                }
            };
        if good { Ok(()) } else { Err(GeometryError) }
    }
}

/// The rings of one channel, as the event path sees them.
///
/// Zeros are a closed channel. So `fork` may wipe the page for the child between any two
/// instructions of the program (A5).
///
/// A restartable sequence reads the fields each time, the number of rings first. So a channel may
/// be changed while other threads write: [`close`](Self::close) it, execute a barrier that restarts
/// all running sequences, and [`open`](Self::open) it.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Channel {
    // One cache line: all that the event path reads.
    /// Rings exist for the CPU numbers below this. 0: the event path cannot use the channel, which
    /// is closed, or has no rings of CPUs.
    pub(super) nr_rings: AtomicU32,
    /// How often the channel was closed. The slow path reads the fields before its restartable
    /// sequence, and compares the epoch within it.
    pub(super) epoch: AtomicU32,
    pub(super) buffers: AtomicPtr<u8>,
    pub(super) control: AtomicPtr<u8>,
    pub(super) control_stride: AtomicU64,
    pub(super) ring_size: AtomicU64,
    /// Size of a ring, minus 1. Of tables: the number of their cells.
    pub(super) ring_mask: AtomicU64,
    /// Size of a sub-buffer, minus 1. Of tables: the size of a cell.
    pub(super) subbuf_mask: AtomicU64,
    /// 0 unless each thread has a ring of its own. Then it is unique among all channels that this
    /// process and the processes that forked it ever opened.
    serial: AtomicU32,
    /// As `nr_rings`, for the sequences of rings of concurrency ids.
    nr_cids: AtomicU32,
    // The next cache line: for all other code.
    cold: Cold,
}

/// Fields of a channel that only the slow path and the shared protocol use.
#[derive(Debug, Default)]
#[repr(C)]
struct Cold {
    /// The pointer of [`WakeupMethod::Futex`] or of [`WakeupMethod::Switch`]; the others are NULL.
    reader_wakeup: AtomicPtr<ReaderWakeup>,
    buffer: AtomicPtr<u8>,
    /// Of [`QuiescenceSlot`]; NULL if there is none.
    readers: AtomicPtr<Readers>,
    slot: AtomicU32,
    /// Number of rings, of any protocol; 0: the channel is closed.
    rings: AtomicU32,
    /// [`Mode`], [`Protocol`] and [`Prefault`], as numbers.
    mode: AtomicU16,
    protocol: AtomicU8,
    prefault: AtomicU8,
    /// As `nr_rings`, for threads with rings of their own that do not announce themselves.
    nr_own: AtomicU32,
    /// Id of the process that opened the channel.
    process: AtomicU32,
    /// Why the event path does not know of the rings: [`CONTEXTS`], [`MONOTONIC`], [`COUNTS`].
    flags: AtomicU32,
    /// As `nr_rings` and `nr_cids`, in a channel whose `flags` are not 0.
    nr_rings_flagged: AtomicU32,
    nr_cids_flagged: AtomicU32,
    /// As `nr_rings`, in a channel that has tables in place of rings.
    nr_tables: AtomicU32,
    /// Number of writers that store into the rings outside of a restartable sequence: writers of
    /// long records, and threads without a slot in [`Readers`]. It is never reset, as writers may
    /// leave after [`Channel::close`].
    inside: AtomicU32,
}

/// Payloads begin with contexts.
const CONTEXTS: u32 = 1;
/// Times are those of [`Source::Monotonic`].
const MONOTONIC: u32 = 2;
/// There are tables in place of rings.
const COUNTS: u32 = 4;

/// Counts a writer that stores into rings outside of a restartable sequence, until it is dropped.
#[derive(Debug)]
pub(super) struct EntryGuard<'a>(&'a AtomicU32);

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        // Pairs with the load in `is_quiescent`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A writer of the shared protocol, or of a record with contexts. The channel is not quiescent
/// until it is dropped.
#[derive(Debug)]
pub(super) enum ChannelGuard<'a> {
    /// The channel is never closed before its writers are gone, so nothing is recorded.
    Unguarded,
    /// The thread stored the fact in its own [`Readers`] slot.
    ReadSide { _guard: ReadSideGuard<'a> },
    /// The thread has no such slot, and counts in the channel.
    Counted { _guard: EntryGuard<'a> },
}

/// A channel that the event path does not know of, with a writer inside. It does not change until
/// this is dropped.
#[derive(Debug)]
pub(crate) struct GuardedChannel<'a> {
    pub(super) channel: &'a Channel,
    _guard: ChannelGuard<'a>,
}

impl GuardedChannel<'_> {
    /// What the calling thread remembers; none if it has no slot for that.
    #[inline(always)]
    pub(crate) fn caches(&self) -> Option<(&Remembered, Walks<'_>)> {
        self.channel.readers()?.known_caches()
    }
}

/// Number of serial numbers that were given to channels. Unlike channels, `fork` does not wipe it.
static SERIALS: AtomicU32 = AtomicU32::new(0);

const _: () = {
    assert!(offset_of!(Channel, cold) == 64);
    assert!(size_of::<Channel>() == 128);
};

/// A ring's control block, which its writers share with the kernel or the reader.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Control {
    pub(super) head: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) time: AtomicU64,
    /// In ring 0 of the control channel: how many ids were given. It lies here because several
    /// copies of this crate in a process may share nothing but the areas.
    ids: AtomicU64,
    pub(super) claimed: AtomicU64,
    pub(super) owner: AtomicU32,
    pub(super) waiters: AtomicU32,
    pub(super) readers: AtomicU32,
    reserved: AtomicU32,
    reserved0: AtomicU64,
    pub(super) consumed: AtomicU64,
    reserved1: [AtomicU64; 7],
}

const _: () = {
    assert!(size_of::<Control>() == size_of::<LttRingControl>());
    assert!(offset_of!(Control, head) == offset_of!(LttRingControl, head));
    assert!(offset_of!(Control, lost) == offset_of!(LttRingControl, lost));
    assert!(offset_of!(Control, ids) == offset_of!(LttRingControl, ids));
    assert!(offset_of!(Control, time) == offset_of!(LttRingControl, time));
    assert!(offset_of!(Control, readers) == offset_of!(LttRingControl, readers));
    assert!(offset_of!(Control, consumed) == offset_of!(LttRingControl, consumed));
};

impl Control {
    /// The lower half of `consumed`: the futex on which writers wait for room.
    pub(super) fn consumed_low(&self) -> &AtomicU32 {
        const { assert!(cfg!(target_endian = "little")) };
        // SAFETY: it lies within the field and is aligned. Only the kernel accesses it in this
        // size.
        unsafe { AtomicU32::from_ptr(self.consumed.as_ptr().cast()) }
    }
}

/// A snapshot of one table of a channel.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) control: &'a Control,
    /// The first cell.
    pub(super) start: *mut u8,
    /// The number of cells, at least 2.
    pub(super) cells: u64,
    pub(super) cell_size: u64,
    /// The channel's epoch, loaded before the other fields.
    pub(super) epoch: u32,
}

/// A snapshot of one ring of a channel.
#[derive(Debug)]
pub(super) struct Ring<'a> {
    pub(super) control: &'a Control,
    pub(super) buffer: *mut u8,
    pub(super) ring_size: u64,
    pub(super) subbuf_size: u64,
    pub(super) mode: Mode,
    /// The reader's futex, if it has one.
    pub(super) reader_wakeup: Option<&'a ReaderWakeup>,
    pub(super) prefault: Prefault,
    /// The channel's epoch, loaded before the other fields.
    pub(super) epoch: u32,
}

impl Ring<'_> {
    /// The address of a position.
    pub(super) fn at<T>(&self, position: u64) -> *mut T {
        self.buffer
            .wrapping_add((position & (self.ring_size - 1)) as usize)
            .cast()
    }
}

impl Channel {
    /// Opens the channel to writers.
    ///
    /// # Errors
    /// The geometry breaks a rule; the channel stays closed.
    ///
    /// # Safety
    /// The rings and the control blocks that the geometry describes must be mapped, readable and
    /// writable, and so must be the reader's futex, if there is one; and they must stay so until
    /// the process ends or executes another program (or, if `self` is wiped by `fork`, until the
    /// fork, in the child). The channel must be closed, with no sequence still running that began
    /// before it was; calls of `open` and `close` must not overlap.
    pub(crate) unsafe fn open(&self, geometry: &Geometry) -> Result<(), GeometryError> {
        geometry.check()?;
        self.buffers.store(geometry.buffers, Ordering::Relaxed);
        self.control.store(geometry.control, Ordering::Relaxed);
        self.control_stride
            .store(geometry.control_stride, Ordering::Relaxed);
        self.ring_size
            .store(geometry.ring_size(), Ordering::Relaxed);
        let counts = geometry.protocol == Protocol::Count;
        let (ring_mask, subbuf_mask) = match u64::from(geometry.cell_size) {
            0 => (geometry.ring_size() - 1, geometry.subbuf_size - 1),
            cell_size => (geometry.ring_size() / cell_size, cell_size),
        };
        self.ring_mask.store(ring_mask, Ordering::Relaxed);
        self.subbuf_mask.store(subbuf_mask, Ordering::Relaxed);
        let cold = &self.cold;
        cold.mode.store(geometry.mode as u16, Ordering::Relaxed);
        cold.protocol
            .store(geometry.protocol as u8, Ordering::Relaxed);
        let (reader_wakeup, buffer) = match geometry.wakeup {
            WakeupMethod::None => (null_mut(), null_mut()),
            WakeupMethod::Futex(reader_wakeup) => (reader_wakeup.cast_mut(), null_mut()),
            WakeupMethod::Switch(buffer) => (null_mut(), buffer.as_ptr()),
        };
        cold.reader_wakeup.store(reader_wakeup, Ordering::Relaxed);
        cold.buffer.store(buffer, Ordering::Relaxed);
        cold.prefault
            .store(geometry.prefault as u8, Ordering::Relaxed);
        let (visitors, slot) = geometry.quiescence.map_or((null_mut(), 0), |visits| {
            (visits.readers.as_ptr(), visits.slot)
        });
        cold.readers.store(visitors, Ordering::Relaxed);
        cold.slot.store(slot, Ordering::Relaxed);
        if geometry.prefault == Prefault::All && geometry.scope != Scope::Thread {
            let len = geometry.ring_size() * u64::from(geometry.nr_rings);
            prefault::all(geometry.buffers, len);
        }
        cold.process.store(os::process::id(), Ordering::Relaxed);
        let contexts = if geometry.contexts { CONTEXTS } else { 0 };
        let kind = contexts | if counts { COUNTS } else { 0 };
        let flags = match geometry.clock {
            Source::Processor => kind,
            Source::Monotonic => kind | MONOTONIC,
        };
        cold.flags.store(flags, Ordering::Relaxed);
        let serial = match geometry.scope {
            // Never 0.
            Scope::Thread => SERIALS.fetch_add(1, Ordering::Relaxed) | 1 << 31,
            Scope::Cpu | Scope::Global | Scope::MmCid => 0,
        };
        self.serial.store(serial, Ordering::Relaxed);
        // Pairs with the load in `ring_at`: a writer that sees the number of rings sees the rest.
        cold.rings.store(geometry.nr_rings, Ordering::Release);
        if geometry.protocol == Protocol::Rseq {
            let nr = match (geometry.scope, flags != 0) {
                (Scope::MmCid, false) => &self.nr_cids,
                (Scope::MmCid, true) => &cold.nr_cids_flagged,
                (_, false) => &self.nr_rings,
                (_, true) => &cold.nr_rings_flagged,
            };
            // Pairs with the loads of the sequences, likewise.
            nr.store(geometry.nr_rings, Ordering::Release);
        } else if counts {
            // Pairs with the load in `table_at`, and with those of the sequences, likewise.
            cold.nr_tables.store(geometry.nr_rings, Ordering::Release);
        } else if serial != 0 && flags == 0 && geometry.quiescence.is_none() {
            // Pairs with the load in `own_rings`, likewise.
            cold.nr_own.store(geometry.nr_rings, Ordering::Release);
        }
        Ok(())
    }

    /// Closes the channel to new writers. A running restartable sequence goes on until the kernel
    /// restarts it.
    pub(crate) fn close(&self) {
        self.nr_rings.store(0, Ordering::Relaxed);
        self.nr_cids.store(0, Ordering::Relaxed);
        self.cold.nr_rings_flagged.store(0, Ordering::Relaxed);
        self.cold.nr_cids_flagged.store(0, Ordering::Relaxed);
        self.cold.nr_tables.store(0, Ordering::Relaxed);
        self.cold.nr_own.store(0, Ordering::Relaxed);
        self.cold.rings.store(0, Ordering::Relaxed);
        // Last: pairs with the order in `ring_at`. A writer that still saw rings has the epoch
        // before this one. SeqCst: pairs with `enter`.
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Sets what writers do from now on when a ring is full. They may be writing meanwhile.
    ///
    /// A writer that begins a sub-buffer decides by the mode of one moment, and by nothing that an
    /// earlier mode left:
    /// - To overwrite, the oldest sub-buffer is claimed, in the mode of now or of a moment ago,
    ///   before it is stored to. (In the shared protocol `head` says the same, and is moved first.)
    ///   So readers look at claims in every mode.
    /// - Not to overwrite, `consumed` must have left the place. In a ring that overwrote, `head` is
    ///   more than a ring beyond `consumed`: it is full until the reader comes to where less than a
    ///   ring is left.
    pub(crate) fn set_mode(&self, mode: Mode) {
        // Relaxed: no other data depends on the mode.
        self.cold.mode.store(mode as u16, Ordering::Relaxed);
    }

    /// Whether writers can enter.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        self.rings() != 0
    }

    /// The number of rings; 0: the channel is closed.
    #[inline(always)]
    pub(super) fn rings(&self) -> u32 {
        // Pairs with the store in `open`: a writer that sees the number of rings sees the rest.
        self.cold.rings.load(Ordering::Acquire)
    }

    /// The number of rings, if each thread has one of its own, and the event path knows of them
    /// without a guard; or else 0.
    #[inline(always)]
    pub(super) fn own_rings(&self) -> u32 {
        // Pairs with the store in `open`, as in `rings`.
        self.cold.nr_own.load(Ordering::Acquire)
    }

    /// Not 0 if each thread has a ring of its own. By this number a thread knows whether the ring
    /// that it remembers belongs to this channel.
    #[inline(always)]
    pub(super) fn serial(&self) -> u32 {
        self.serial.load(Ordering::Relaxed)
    }

    /// Id of the process that opened the channel. Other processes may share its memory, and their
    /// threads' ids mean nothing in this one.
    pub(super) fn process(&self) -> u32 {
        self.cold.process.load(Ordering::Relaxed)
    }

    /// Whether the channel is open, and its records are committed by the shared protocol.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        // Pairs with the store in `open`: an open channel's protocol is known.
        self.cold.rings.load(Ordering::Acquire) != 0
            && self.cold.protocol.load(Ordering::Relaxed) == Protocol::Shared as u8
    }

    /// Offset of the field with the number of rings for sequences whose index is the field at
    /// `index` of `struct rseq`.
    pub(super) const fn nr_offset(index: i32) -> usize {
        match index {
            CPU_ID => offset_of!(Self, nr_rings),
            MM_CID => offset_of!(Self, nr_cids),
            CPU_ID_WITH_CONTEXT => offset_of!(Self, cold.nr_rings_flagged),
            MM_CID_WITH_CONTEXT => offset_of!(Self, cold.nr_cids_flagged),
            CPU_ID_OF_TABLE => offset_of!(Self, cold.nr_tables),
            _ => panic!("no index of rings"),
        }
    }

    /// Whether the channel is open, and its rings are for sequences whose index is the field at
    /// `INDEX` of `struct rseq`.
    pub(super) fn is_by<const INDEX: i32>(&self) -> bool {
        let nr = match INDEX {
            MM_CID => &self.nr_cids,
            CPU_ID_WITH_CONTEXT => &self.cold.nr_rings_flagged,
            MM_CID_WITH_CONTEXT => &self.cold.nr_cids_flagged,
            CPU_ID_OF_TABLE => &self.cold.nr_tables,
            _ => &self.nr_rings,
        };
        // Pairs with the store in `open`: a writer that sees the number of rings sees the rest.
        nr.load(Ordering::Acquire) != 0
    }

    /// Whether the channel is open, and the event path can write to its rings, which are those of
    /// CPUs.
    pub(crate) fn is_of_cpus(&self) -> bool {
        self.is_by::<CPU_ID>()
    }

    /// Whether the channel is open, and has tables that count events.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.is_by::<CPU_ID_OF_TABLE>()
    }

    /// Whether the channel has tables whose cells have no values. The channel must be open.
    pub(crate) fn counts_without_values(&self) -> bool {
        // Relaxed: the holder of the state's lock opens channels, and calls this.
        let cell_size = self.subbuf_mask.load(Ordering::Relaxed);
        self.counts() && cell_size == u64::from(LTT_COUNT_CELL_PLAIN)
    }

    /// Whether no writer is inside the rings, other than in a restartable sequence.
    ///
    /// The thread that closes a channel may release its memory only if this holds after a barrier
    /// in all threads that also restarts all sequences. The last writer to leave then calls
    /// `refresh` of the runtime.
    #[must_use]
    pub(crate) fn is_quiescent(&self) -> bool {
        // SeqCst: pairs with `enter`. The stores of writers that left happened before what follows
        // here.
        let entered = self.cold.inside.load(Ordering::SeqCst) != 0;
        let no_readers = |readers: &Readers| {
            // Relaxed: the thread that closed the channel stored it, or it was stored before.
            readers.no_readers(self.cold.slot.load(Ordering::Relaxed))
        };
        !entered && self.readers().is_none_or(no_readers)
    }

    fn readers(&self) -> Option<&Readers> {
        // Relaxed: a thread that saw the number of rings, or closed the channel, sees this.
        let readers = self.cold.readers.load(Ordering::Relaxed);
        // SAFETY: `open`'s caller promised that the table stays mapped. All in it is atomic.
        unsafe { readers.as_ref() }
    }

    /// Whether the event path does not know of the channel's rings. Only a writer inside can rely
    /// on the answer.
    #[inline(always)]
    pub(super) fn is_flagged(&self) -> bool {
        // Relaxed: `guard` comes first. Where the caller only chooses a path, nothing depends on
        // it.
        self.cold.flags.load(Ordering::Relaxed) != 0
    }

    /// Whether payloads of the channel begin with contexts. Only a writer inside can rely on the
    /// answer.
    #[inline(always)]
    pub(crate) fn has_contexts(&self) -> bool {
        // Relaxed: likewise.
        self.cold.flags.load(Ordering::Relaxed) & CONTEXTS != 0
    }

    /// The clock of the channel's records. A caller can rely on it if it is inside, or if its
    /// sequence compares the epoch that it loaded before this.
    pub(super) fn clock(&self) -> Source {
        // Relaxed: likewise, or the number of rings comes first.
        match self.cold.flags.load(Ordering::Relaxed) & MONOTONIC {
            0 => Source::Processor,
            _ => Source::Monotonic,
        }
    }

    /// Enters the channel for a record with contexts, which do not change until the result is
    /// dropped. None if the channel is closed, or has no contexts.
    #[inline(always)]
    pub(crate) fn in_contexts(&self) -> Option<GuardedChannel<'_>> {
        if !self.has_contexts() {
            return None;
        }
        let guard = self.guard()?;
        // The channel may have been closed and opened again before the guard.
        self.has_contexts().then_some(GuardedChannel {
            channel: self,
            _guard: guard,
        })
    }

    /// Enters a channel that the event path does not know of, for a record without contexts. None
    /// if the channel is closed, or is not such a channel.
    pub(super) fn enter_flagged_without_contexts(&self) -> Option<GuardedChannel<'_>> {
        let is_one = || self.is_flagged() && !self.has_contexts();
        if !is_one() {
            return None;
        }
        let guard = self.guard()?;
        // The channel may have been closed and opened again before the guard.
        is_one().then_some(GuardedChannel {
            channel: self,
            _guard: guard,
        })
    }

    /// Whether writers of the shared protocol announce themselves. If not, the channel is never
    /// closed before all of them have left. The caller loads the number of rings first.
    #[inline(always)]
    pub(super) fn has_guards(&self) -> bool {
        self.readers().is_some()
    }

    /// Enters the channel, for a writer of the shared protocol; none if the channel is closed.
    ///
    /// The caller loads the number of rings first. Fields of the channel that it loads then stay
    /// valid until the guard is dropped.
    #[inline(always)]
    pub(super) fn guard(&self) -> Option<ChannelGuard<'_>> {
        if self.rings() == 0 {
            return None;
        }
        let Some(readers) = self.readers() else {
            return Some(ChannelGuard::Unguarded);
        };
        let guard = readers.enter(self.cold.slot.load(Ordering::Relaxed));
        Some(match guard {
            Some(guard) => ChannelGuard::ReadSide { _guard: guard },
            None => self.guard_by_count(),
        })
    }

    #[cold]
    #[inline(never)]
    fn guard_by_count(&self) -> ChannelGuard<'_> {
        // SeqCst: pairs with `close` and `is_quiescent`, as in `enter`. Here the caller loads the
        // number of rings next; the closing thread has a barrier between its store of that and
        // `is_quiescent`.
        self.cold.inside.fetch_add(1, Ordering::SeqCst);
        ChannelGuard::Counted {
            _guard: EntryGuard(&self.cold.inside),
        }
    }

    /// Enters the channel, for a writer that stores into rings outside of a restartable sequence.
    /// None if the channel was closed since it had this epoch.
    pub(super) fn enter(&self, epoch: u32) -> Option<EntryGuard<'_>> {
        // SeqCst: pairs with `close` and `is_quiescent`. Either this sees that the channel was
        // closed, or `is_quiescent` sees that a writer is inside.
        self.cold.inside.fetch_add(1, Ordering::SeqCst);
        let entered = EntryGuard(&self.cold.inside);
        (self.epoch.load(Ordering::SeqCst) == epoch).then_some(entered)
    }

    /// The buffer that the kernel is to switch when a writer waits for its readers.
    pub(super) fn buffer(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.cold.buffer.load(Ordering::Relaxed))
    }

    /// The ring with an index: a CPU number, a concurrency id, or the number of a thread's ring.
    /// None if there is no such ring, as in a closed channel.
    pub(super) fn ring_at(&self, index: u32) -> Option<Ring<'_>> {
        // The epoch comes first: pairs with the order in `close`. If the channel is closed
        // meanwhile, the sequence that compares it fails.
        let epoch = self.epoch.load(Ordering::Acquire);
        // Pairs with the store in `open`.
        if index >= self.cold.rings.load(Ordering::Acquire) {
            return None;
        }
        let cold = &self.cold;
        let ring_size = self.ring_size.load(Ordering::Relaxed);
        let control = self.control.load(Ordering::Relaxed);
        let stride = self.control_stride.load(Ordering::Relaxed);
        let buffers = self.buffers.load(Ordering::Relaxed);
        Some(Ring {
            // SAFETY: `open`'s caller promised that the control blocks are mapped from then on, and
            // `check` verified the alignment. Everything in a control block is atomic.
            control: unsafe {
                &*control
                    .add(index as usize * stride as usize)
                    .cast::<Control>()
            },
            buffer: buffers.wrapping_add(index as usize * ring_size as usize),
            ring_size,
            subbuf_size: self.subbuf_mask.load(Ordering::Relaxed) + 1,
            mode: Mode::from_number(cold.mode.load(Ordering::Relaxed).into())
                .unwrap_or(Mode::Discard),
            reader_wakeup: self.reader_wakeup(),
            prefault: Prefault::from_number(cold.prefault.load(Ordering::Relaxed).into()),
            epoch,
        })
    }

    /// The control block of a CPU's ring, and the epoch; none if the event path knows of no such
    /// ring.
    #[inline(always)]
    pub(super) fn control_at(&self, cpu: u32) -> Option<(&Control, u32)> {
        // As in `ring_at`.
        let epoch = self.epoch.load(Ordering::Acquire);
        if cpu >= self.nr_rings.load(Ordering::Acquire) {
            return None;
        }
        let control = self.control.load(Ordering::Relaxed);
        let stride = self.control_stride.load(Ordering::Relaxed);
        // SAFETY: as in `ring_at`.
        let control = unsafe {
            &*control
                .add(cpu as usize * stride as usize)
                .cast::<Control>()
        };
        Some((control, epoch))
    }

    /// The reader's futex, if it has one.
    pub(super) fn reader_wakeup(&self) -> Option<&ReaderWakeup> {
        // SAFETY: `open`'s caller promised that it is mapped as long as the rings, or it is NULL.
        // All in it is atomic.
        unsafe { self.cold.reader_wakeup.load(Ordering::Relaxed).as_ref() }
    }

    /// The table of a CPU. None if there is no such table, as in a closed channel.
    #[inline(always)]
    pub(super) fn table_at(&self, cpu: u32) -> Option<Table<'_>> {
        // The epoch comes first: pairs with the order in `close`, as in `ring_at`.
        let epoch = self.epoch.load(Ordering::Acquire);
        // Pairs with the store in `open`.
        if cpu >= self.cold.nr_tables.load(Ordering::Acquire) {
            return None;
        }
        let control = self.control.load(Ordering::Relaxed);
        let stride = self.control_stride.load(Ordering::Relaxed);
        let ring_size = self.ring_size.load(Ordering::Relaxed);
        let buffers = self.buffers.load(Ordering::Relaxed);
        let cells = self.ring_mask.load(Ordering::Relaxed);
        let cell_size = self.subbuf_mask.load(Ordering::Relaxed);
        // The caller reads cells before its sequence compares the epoch, so all fields must be of
        // one opening. Pairs with the barrier in all threads between `close` and `open`: a thread
        // that saw a field of a later opening sees the later epoch.
        fence(Ordering::Acquire);
        if self.epoch.load(Ordering::Relaxed) != epoch {
            return None;
        }
        Some(Table {
            // SAFETY: as in `ring_at`.
            control: unsafe {
                &*control
                    .add(cpu as usize * stride as usize)
                    .cast::<Control>()
            },
            start: buffers.wrapping_add(cpu as usize * ring_size as usize),
            cells,
            cell_size,
            epoch,
        })
    }

    /// A new event id, unique in this process and trace; none if all ids are used. For control
    /// channels only.
    pub(crate) fn new_id(&self) -> Option<u16> {
        let given = self.ring_at(0)?.control.ids.fetch_add(1, Ordering::Relaxed);
        let id = given.checked_add(LTT_ID_MIN.into())?;
        u16::try_from(id).ok().filter(|id| *id <= LTT_ID_MAX)
    }

    /// Position of the head, and number of lost records, of all rings.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..).map_while(|cpu| self.ring_at(cpu)).map(|ring| {
            // Pairs with the store of `head` that commits: the caller may go on to look at the
            // records.
            (
                ring.control.head.load(Ordering::Acquire),
                ring.control.lost.load(Ordering::Relaxed),
            )
        })
    }
}
