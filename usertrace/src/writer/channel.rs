//! What a writer must know about the rings of one channel.

use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use usertrace_sys::uapi::{LTT_ID_MAX, LTT_ID_MIN, LttRingControl, LttSubbuf};
use usertrace_sys::{Mode, Protocol, Scope};

use super::doorbell::Doorbell;
use super::prefault::{self, Prefault};
use super::quiescence::{ReadSideGuard, Readers};
use super::remembered::Remembered;
use super::ring_index::{CPU_ID, CPU_ID_WITH_CONTEXT, MAX_RINGS, MM_CID, MM_CID_WITH_CONTEXT};
use super::wakeup::Wakeup;
use crate::clock::Source;
use crate::os;

/// Longest record that a channel must be able to take, with its header: a record of metadata.
pub(crate) const LONGEST: u64 = 8 + usertrace_sys::uapi::LTT_META_MAX as u64;

/// How far in front of a record the cache is told which bytes of the ring will be written.
pub(super) const AHEAD: u64 = 512;

/// Where the rings of a channel are, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Where ring 0 starts.
    pub buffers: *mut u8,
    /// Ring 0's control block.
    pub control: *mut u8,
    /// Between two control blocks.
    pub control_stride: u64,
    /// A power of two.
    pub subbuf_size: u64,
    /// A power of two.
    pub subbuf_count: u64,
    /// [`Scope::Cpu`], [`Scope::MmCid`]: one for each CPU. [`Scope::Global`]: 1.
    pub nr_rings: u32,
    /// Who writes a ring.
    pub scope: Scope,
    /// What becomes of records when a ring is full.
    pub mode: Mode,
    /// How records are committed.
    pub protocol: Protocol,
    /// How writers tell readers of what there is, and who waits how.
    pub wakeup: Wakeup,
    /// When writers ask for the pages of the rings.
    pub prefault: Prefault,
    /// Payloads begin with contexts: the event path does not know of these rings.
    pub contexts: bool,
    /// What times are made of. If it is not the processor's counter, the event path does not know
    /// of these rings, either.
    pub clock: Source,
    /// Where writers of the shared protocol say that they are inside. Nothing if the channel is not
    /// closed before all of them are gone.
    pub visits: Option<QuiescenceSlot>,
}

/// Where writers say that they are inside, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuiescenceSlot {
    /// Of the process. It must stay where it is, as the rings must.
    pub visitors: NonNull<Readers>,
    /// The channel's slot.
    pub slot: u32,
}

/// A geometry that no writer could work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadGeometry;

impl Geometry {
    /// Bytes in a ring.
    #[must_use]
    pub fn ring_size(&self) -> u64 {
        self.subbuf_size * self.subbuf_count
    }

    /// Checks what the writer's arithmetic relies on.
    fn check(&self) -> Result<(), BadGeometry> {
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
            };
        if good { Ok(()) } else { Err(BadGeometry) }
    }
}

/// The rings of one channel, as the event path sees them.
///
/// All zeros is a channel that is closed, so the page in which these lie may be wiped at any time
/// between two instructions of a program: `fork` does that for the child (A5).
///
/// A restartable sequence reads the fields anew, and looks at the number of rings first. So
/// [`close`](Self::close), then a barrier that restarts all running sequences, then
/// [`open`](Self::open) is how a channel may be changed while others write.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Channel {
    // One cache line, all that the event path reads.
    /// 0: there is nothing here for the event path, as the channel is closed, or its rings are not
    /// those of CPUs. Otherwise rings exist for the CPU numbers below it.
    pub(super) nr_rings: AtomicU32,
    /// How often the channel was closed: tells the slow path, which looks at the fields before its
    /// restartable sequence, whether they still hold in it.
    pub(super) epoch: AtomicU32,
    pub(super) buffers: AtomicPtr<u8>,
    pub(super) control: AtomicPtr<u8>,
    pub(super) control_stride: AtomicU64,
    pub(super) ring_size: AtomicU64,
    /// Size of a ring, minus 1.
    pub(super) ring_mask: AtomicU64,
    /// Size of a sub-buffer, minus 1.
    pub(super) subbuf_mask: AtomicU64,
    /// If each thread has a ring of its own: a number that no other opened channel of this process
    /// has, and none of the process that it was forked from. Otherwise 0.
    serial: AtomicU32,
    /// As `nr_rings`, for the sequences of rings of concurrency ids.
    nr_cids: AtomicU32,
    // The next cache line, for everybody else.
    cold: Cold,
}

/// What only the slow path and the shared protocol need to know of a channel.
#[derive(Debug, Default)]
#[repr(C)]
struct Cold {
    /// Of [`Wakeup`]: one of them, or none.
    doorbell: AtomicPtr<Doorbell>,
    buffer: AtomicPtr<u8>,
    /// Of [`QuiescenceSlot`], or NULL.
    visitors: AtomicPtr<Readers>,
    slot: AtomicU32,
    /// 0: closed. Otherwise how many rings there are, whatever the protocol.
    rings: AtomicU32,
    /// [`Mode`] and [`Protocol`], as numbers.
    mode: AtomicU32,
    protocol: AtomicU32,
    prefault: AtomicU32,
    /// That opened it.
    process: AtomicU32,
    /// Why the event path does not know of the rings, as bits: [`CONTEXTS`], [`MONOTONIC`].
    apart: AtomicU32,
    /// As `nr_rings` and `nr_cids`, where `apart` is not 0.
    nr_rings_apart: AtomicU32,
    nr_cids_apart: AtomicU32,
    /// Writers that store into any of the rings outside of a restartable sequence: long records,
    /// and what [`Readers`] have no place for. Never set back: they outlive a [`Channel::close`].
    inside: AtomicU32,
}

/// Payloads begin with contexts.
const CONTEXTS: u32 = 1;
/// Times are those of [`Source::Monotonic`].
const MONOTONIC: u32 = 2;

/// A writer that stores into rings outside of a restartable sequence.
#[derive(Debug)]
pub(super) struct Entered<'a>(&'a AtomicU32);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Pairs with the load in `is_left`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A writer of the shared protocol, or one whose record has contexts. Those who close the channel
/// wait for it.
#[derive(Debug)]
pub(super) enum Visit<'a> {
    /// Nobody closes the channel before it is gone.
    Free,
    Marked {
        _mark: ReadSideGuard<'a>,
    },
    Entered {
        _entered: Entered<'a>,
    },
}

/// A writer in a channel that the event path does not know of.
#[derive(Debug)]
pub(crate) struct InContexts<'a> {
    pub(super) channel: &'a Channel,
    _visit: Visit<'a>,
}

impl InContexts<'_> {
    /// What the calling thread remembers of itself; nothing if it has no place where that is.
    pub(crate) fn remembered(&self) -> Option<&Remembered> {
        self.channel.visitors()?.remembered()
    }
}

/// How many serial numbers of channels were given. As opposed to channels, it is not wiped by
/// `fork`.
static SERIALS: AtomicU32 = AtomicU32::new(0);

const _: () = {
    assert!(offset_of!(Channel, cold) == 64);
    assert!(size_of::<Channel>() == 128);
};

/// One ring's control block, where several writers and the kernel share it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Control {
    pub(super) head: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) time: AtomicU64,
    /// In ring 0 of the control channel: how many ids were given. It lies here because several
    /// libraries in one process may trace, each with a copy of this crate, and all that these share
    /// are the areas.
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
    /// The lower half of `consumed`, on which writers sleep that wait for room.
    pub(super) fn consumed_low(&self) -> &AtomicU32 {
        const { assert!(cfg!(target_endian = "little")) };
        // SAFETY: it lies in the field, is aligned, and only the kernel accesses it in this size.
        unsafe { AtomicU32::from_ptr(self.consumed.as_ptr().cast()) }
    }
}

/// One ring of a channel, as it was at one moment.
#[derive(Debug)]
pub(super) struct Ring<'a> {
    pub(super) control: &'a Control,
    pub(super) buffer: *mut u8,
    pub(super) ring_size: u64,
    pub(super) subbuf_size: u64,
    pub(super) mode: Mode,
    /// Where to tell that a sub-buffer was filled.
    pub(super) doorbell: Option<&'a Doorbell>,
    pub(super) prefault: Prefault,
    /// Of the channel, before the rest was read.
    pub(super) epoch: u32,
}

impl Ring<'_> {
    /// Where the ring has what is at a position.
    pub(super) fn at<T>(&self, position: u64) -> *mut T {
        self.buffer
            .wrapping_add((position & (self.ring_size - 1)) as usize)
            .cast()
    }
}

impl Channel {
    /// Lets writers in.
    ///
    /// # Errors
    /// The geometry is not one that a writer could work with; the channel stays closed.
    ///
    /// # Safety
    /// The rings and the control blocks that the geometry describes must be mapped, readable and
    /// writable, and so must be the doorbell, if there is one; and they must stay so until the
    /// process ends or executes another program (or, if `self` is wiped by `fork`, until the fork,
    /// in the child). The channel must be closed, with no sequence still running that began before
    /// it was; calls of `open` and `close` must not overlap.
    pub unsafe fn open(&self, geometry: &Geometry) -> Result<(), BadGeometry> {
        geometry.check()?;
        self.buffers.store(geometry.buffers, Ordering::Relaxed);
        self.control.store(geometry.control, Ordering::Relaxed);
        self.control_stride
            .store(geometry.control_stride, Ordering::Relaxed);
        self.ring_size
            .store(geometry.ring_size(), Ordering::Relaxed);
        self.ring_mask
            .store(geometry.ring_size() - 1, Ordering::Relaxed);
        self.subbuf_mask
            .store(geometry.subbuf_size - 1, Ordering::Relaxed);
        let cold = &self.cold;
        cold.mode.store(geometry.mode as u32, Ordering::Relaxed);
        cold.protocol
            .store(geometry.protocol as u32, Ordering::Relaxed);
        let (doorbell, buffer) = match geometry.wakeup {
            Wakeup::None => (null_mut(), null_mut()),
            Wakeup::Doorbell(doorbell) => (doorbell.cast_mut(), null_mut()),
            Wakeup::Switch(buffer) => (null_mut(), buffer.as_ptr()),
        };
        cold.doorbell.store(doorbell, Ordering::Relaxed);
        cold.buffer.store(buffer, Ordering::Relaxed);
        cold.prefault
            .store(geometry.prefault as u32, Ordering::Relaxed);
        let (visitors, slot) = geometry.visits.map_or((null_mut(), 0), |visits| {
            (visits.visitors.as_ptr(), visits.slot)
        });
        cold.visitors.store(visitors, Ordering::Relaxed);
        cold.slot.store(slot, Ordering::Relaxed);
        if geometry.prefault == Prefault::All && geometry.scope != Scope::Thread {
            let len = geometry.ring_size() * u64::from(geometry.nr_rings);
            prefault::all(geometry.buffers, len);
        }
        cold.process.store(os::process::id(), Ordering::Relaxed);
        let contexts = if geometry.contexts { CONTEXTS } else { 0 };
        let apart = match geometry.clock {
            Source::Processor => contexts,
            Source::Monotonic => contexts | MONOTONIC,
        };
        cold.apart.store(apart, Ordering::Relaxed);
        let serial = match geometry.scope {
            // Never 0.
            Scope::Thread => SERIALS.fetch_add(1, Ordering::Relaxed) | 1 << 31,
            Scope::Cpu | Scope::Global | Scope::MmCid => 0,
        };
        self.serial.store(serial, Ordering::Relaxed);
        // Pairs with the load in `ring_at`: who sees the number of rings sees the rest.
        cold.rings.store(geometry.nr_rings, Ordering::Release);
        if geometry.protocol == Protocol::Rseq {
            let nr = match (geometry.scope, apart != 0) {
                (Scope::MmCid, false) => &self.nr_cids,
                (Scope::MmCid, true) => &cold.nr_cids_apart,
                (_, false) => &self.nr_rings,
                (_, true) => &cold.nr_rings_apart,
            };
            // Pairs with the sequences' loads, likewise.
            nr.store(geometry.nr_rings, Ordering::Release);
        }
        Ok(())
    }

    /// Keeps new writers out. Those that are in a restartable sequence go on until it is restarted.
    pub fn close(&self) {
        self.nr_rings.store(0, Ordering::Relaxed);
        self.nr_cids.store(0, Ordering::Relaxed);
        self.cold.nr_rings_apart.store(0, Ordering::Relaxed);
        self.cold.nr_cids_apart.store(0, Ordering::Relaxed);
        self.cold.rings.store(0, Ordering::Relaxed);
        // Last: pairs with the order in `ring_at`. Who found rings there has the epoch before this
        // one. SeqCst: pairs with `enter`.
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// What becomes of records from now on when a ring is full. The channel may be open, and be
    /// written to.
    ///
    /// Who begins a sub-buffer decides by the mode as it was at one moment, and by nothing that an
    /// earlier mode left:
    /// - To overwrite, the oldest sub-buffer is claimed, in the mode of now or of a moment ago,
    ///   before it is stored to. (In the shared protocol `head` says the same, and is moved first.)
    ///   So readers look at claims in every mode.
    /// - Not to overwrite, `consumed` must have left the place. In a ring that overwrote, `head` is
    ///   more than a ring beyond `consumed`: it is full until the reader comes to where less than a
    ///   ring is left.
    pub fn set_mode(&self, mode: Mode) {
        // Relaxed: nothing else says what it is.
        self.cold.mode.store(mode as u32, Ordering::Relaxed);
    }

    /// Writers may come in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rings() != 0
    }

    /// How many rings there are; 0: the channel is closed.
    #[inline(always)]
    pub(super) fn rings(&self) -> u32 {
        // Pairs with the store in `open`: who sees the number of rings sees the rest.
        self.cold.rings.load(Ordering::Acquire)
    }

    /// Not 0 if each thread has a ring of its own, and then a number by which a thread knows
    /// whether the one that it remembers is one of this channel.
    #[inline(always)]
    pub(super) fn serial(&self) -> u32 {
        self.serial.load(Ordering::Relaxed)
    }

    /// The process that opened the channel: what others write that share its memory, its threads'
    /// numbers do not cover.
    pub(super) fn process(&self) -> u32 {
        self.cold.process.load(Ordering::Relaxed)
    }

    /// The channel is open, and its records are committed by the shared protocol.
    pub(crate) fn is_shared(&self) -> bool {
        // Pairs with the store in `open`: an open channel's protocol is known.
        self.cold.rings.load(Ordering::Acquire) != 0
            && self.cold.protocol.load(Ordering::Relaxed) == Protocol::Shared as u32
    }

    /// Where a channel says for how many rings there are sequences whose index is the field at
    /// `INDEX` of `struct rseq`.
    pub(super) const fn nr_offset(index: i32) -> usize {
        match index {
            CPU_ID => offset_of!(Self, nr_rings),
            MM_CID => offset_of!(Self, nr_cids),
            CPU_ID_WITH_CONTEXT => offset_of!(Self, cold.nr_rings_apart),
            MM_CID_WITH_CONTEXT => offset_of!(Self, cold.nr_cids_apart),
            _ => panic!("no index of rings"),
        }
    }

    /// The channel is open, and its rings are for sequences whose index is the field at `INDEX` of
    /// `struct rseq`.
    pub(super) fn is_by<const INDEX: i32>(&self) -> bool {
        let nr = match INDEX {
            MM_CID => &self.nr_cids,
            CPU_ID_WITH_CONTEXT => &self.cold.nr_rings_apart,
            MM_CID_WITH_CONTEXT => &self.cold.nr_cids_apart,
            _ => &self.nr_rings,
        };
        // Pairs with the store in `open`: who sees the number of rings sees the rest.
        nr.load(Ordering::Acquire) != 0
    }

    /// The channel is open, and the event path can write to its rings, which are those of CPUs.
    pub(crate) fn is_of_cpus(&self) -> bool {
        self.is_by::<CPU_ID>()
    }

    /// Nobody is in any of the rings, other than in a restartable sequence.
    ///
    /// Who closes a channel may give its memory away only if this holds after a barrier in all
    /// threads, which also restarts all sequences. The last writer out comes to `refresh` of the
    /// runtime after that.
    #[must_use]
    pub fn is_left(&self) -> bool {
        // SeqCst: pairs with `enter`. What was stored by those who left comes before whatever
        // follows here.
        let entered = self.cold.inside.load(Ordering::SeqCst) != 0;
        let are_gone = |visitors: &Readers| {
            // Relaxed: it was stored by whoever closed the channel, or before.
            visitors.are_gone(self.cold.slot.load(Ordering::Relaxed))
        };
        !entered && self.visitors().is_none_or(are_gone)
    }

    fn visitors(&self) -> Option<&Readers> {
        // Relaxed: who saw the number of rings, or closed the channel, sees this.
        let visitors = self.cold.visitors.load(Ordering::Relaxed);
        // SAFETY: `open`'s caller promised that it stays where it is. All in it is atomic.
        unsafe { visitors.as_ref() }
    }

    /// The event path does not know of the channel's rings. Only those who are in it can rely on
    /// that.
    #[inline(always)]
    pub(super) fn is_apart(&self) -> bool {
        // Relaxed: `visit` comes first, or, for those who only choose a way, nothing depends on it.
        self.cold.apart.load(Ordering::Relaxed) != 0
    }

    /// Payloads of the channel begin with contexts. Only those who are in it can rely on that.
    pub(super) fn has_contexts(&self) -> bool {
        // Relaxed: likewise.
        self.cold.apart.load(Ordering::Relaxed) & CONTEXTS != 0
    }

    /// What the times in the channel are made of. Only those who are in it can rely on that, and
    /// those whose sequence compares the epoch that the channel had before this.
    pub(super) fn clock(&self) -> Source {
        // Relaxed: likewise, or the number of rings comes first.
        match self.cold.apart.load(Ordering::Relaxed) & MONOTONIC {
            0 => Source::Processor,
            _ => Source::Monotonic,
        }
    }

    /// Lets a writer in whose record has contexts; nothing if the channel has none, or is closed.
    /// They stay as they are until it is out.
    pub(crate) fn in_contexts(&self) -> Option<InContexts<'_>> {
        if !self.has_contexts() {
            return None;
        }
        let visit = self.visit()?;
        // It may have become another one before the visit.
        self.has_contexts().then_some(InContexts {
            channel: self,
            _visit: visit,
        })
    }

    /// Lets a writer in whose record has no contexts, though the event path does not know of the
    /// channel; nothing if that is not so, or if it is closed. That stays so until it is out.
    pub(super) fn apart_without_contexts(&self) -> Option<InContexts<'_>> {
        let is_one = || self.is_apart() && !self.has_contexts();
        if !is_one() {
            return None;
        }
        let visit = self.visit()?;
        // It may have become another one before the visit.
        is_one().then_some(InContexts {
            channel: self,
            _visit: visit,
        })
    }

    /// Lets a writer of the shared protocol in. What it looks up in the channel after this stays so
    /// until it is out, the number of rings first. Nothing if the channel is closed.
    #[inline(always)]
    pub(super) fn visit(&self) -> Option<Visit<'_>> {
        if self.rings() == 0 {
            return None;
        }
        let Some(visitors) = self.visitors() else {
            return Some(Visit::Free);
        };
        let mark = visitors.mark(self.cold.slot.load(Ordering::Relaxed));
        Some(match mark {
            Some(mark) => Visit::Marked { _mark: mark },
            None => self.visit_slowly(),
        })
    }

    #[cold]
    #[inline(never)]
    fn visit_slowly(&self) -> Visit<'_> {
        // SeqCst: pairs with `close` and `is_left`, as in `enter`: but it is the number of rings
        // that is looked at next, and who closes the channel has a barrier between that and
        // `is_left`.
        self.cold.inside.fetch_add(1, Ordering::SeqCst);
        Visit::Entered {
            _entered: Entered(&self.cold.inside),
        }
    }

    /// Lets a writer into the rings that means to store there outside of a restartable sequence;
    /// nothing comes back if the channel was closed since it had this epoch.
    pub(super) fn enter(&self, epoch: u32) -> Option<Entered<'_>> {
        // SeqCst: pairs with `close` and `is_left`. Either this sees that the channel was closed,
        // or that one sees that somebody is inside.
        self.cold.inside.fetch_add(1, Ordering::SeqCst);
        let entered = Entered(&self.cold.inside);
        (self.epoch.load(Ordering::SeqCst) == epoch).then_some(entered)
    }

    /// The buffer that the kernel is asked to switch by those who wait for its readers.
    pub(super) fn buffer(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.cold.buffer.load(Ordering::Relaxed))
    }

    /// The ring with an index, or nothing if the channel has none, as when it is closed: that of a
    /// CPU, of a concurrency id, of a thread, or of all.
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
            // `check` that the alignment is right. Everything in a control block is atomic.
            control: unsafe {
                &*control
                    .add(index as usize * stride as usize)
                    .cast::<Control>()
            },
            buffer: buffers.wrapping_add(index as usize * ring_size as usize),
            ring_size,
            subbuf_size: self.subbuf_mask.load(Ordering::Relaxed) + 1,
            mode: Mode::from_number(cold.mode.load(Ordering::Relaxed)).unwrap_or(Mode::Discard),
            // SAFETY: `open`'s caller promised that it is mapped as the rings are, or NULL. All in
            // it is atomic.
            doorbell: unsafe { cold.doorbell.load(Ordering::Relaxed).as_ref() },
            prefault: Prefault::from_number(cold.prefault.load(Ordering::Relaxed)),
            epoch,
        })
    }

    /// An id that no other event of this process has in this trace. For control channels.
    pub(crate) fn new_id(&self) -> Option<u16> {
        let given = self.ring_at(0)?.control.ids.fetch_add(1, Ordering::Relaxed);
        let id = given.checked_add(LTT_ID_MIN.into())?;
        u16::try_from(id).ok().filter(|id| *id <= LTT_ID_MAX)
    }

    /// The positions of all rings: head, and records lost.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..).map_while(|cpu| self.ring_at(cpu)).map(|ring| {
            // Pairs with the store of head that commits: for those who go on to look at the
            // records.
            (
                ring.control.head.load(Ordering::Acquire),
                ring.control.lost.load(Ordering::Relaxed),
            )
        })
    }
}
