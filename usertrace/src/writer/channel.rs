//! What a writer must know about the rings of one channel.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use usertrace_sys::uapi::{LTT_ID_MAX, LTT_ID_MIN, LttRingControl, LttSubbuf};

/// Longest record that a channel must be able to take, with its header: a record of metadata.
pub(crate) const LONGEST: u64 = 8 + usertrace_sys::uapi::LTT_META_MAX as u64;

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
    /// One for each CPU.
    pub nr_rings: u32,
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
            && self.nr_rings <= 1 << 16;
        if good { Ok(()) } else { Err(BadGeometry) }
    }
}

/// The rings of one channel, as the event path sees them.
///
/// All zeros is a channel that is closed, so the page in which these lie may be wiped at any time between two
/// instructions of a program: `fork` does that for the child (A5).
///
/// The event path reads the fields anew in each restartable sequence, and looks at `nr_rings` first. So
/// [`close`](Self::close), then a barrier that restarts all running sequences, then [`open`](Self::open) is how a
/// channel may be changed while others write.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Channel {
    /// 0: closed. Otherwise rings exist for the CPU numbers below it.
    pub(super) nr_rings: AtomicU32,
    /// How often the channel was closed: tells the slow path, which looks at the fields before its restartable
    /// sequence, whether they still hold in it.
    pub(super) epoch: AtomicU32,
    pub(super) buffers: AtomicPtr<u8>,
    pub(super) control: AtomicPtr<u8>,
    pub(super) control_stride: AtomicU64,
    pub(super) ring_size: AtomicU64,
    /// Size of a ring, minus 1.
    pub(super) ring_mask: AtomicU64,
    /// Size of a sub-buffer, minus 1.
    pub(super) subbuf_mask: AtomicU64,
}

/// One ring's control block, where several writers and the kernel share it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Control {
    pub(super) head: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) time: AtomicU64,
    /// In ring 0 of the control channel: how many ids were given. It lies here because several libraries in one
    /// process may trace, each with a copy of this crate, and all that these share are the areas.
    ids: AtomicU64,
    reserved0: [AtomicU64; 4],
    pub(super) consumed: AtomicU64,
    reserved1: [AtomicU64; 7],
}

const _: () = {
    assert!(size_of::<Control>() == size_of::<LttRingControl>());
    assert!(std::mem::offset_of!(Control, head) == std::mem::offset_of!(LttRingControl, head));
    assert!(std::mem::offset_of!(Control, lost) == std::mem::offset_of!(LttRingControl, lost));
    assert!(std::mem::offset_of!(Control, ids) == std::mem::offset_of!(LttRingControl, ids));
    assert!(std::mem::offset_of!(Control, time) == std::mem::offset_of!(LttRingControl, time));
    assert!(
        std::mem::offset_of!(Control, consumed) == std::mem::offset_of!(LttRingControl, consumed)
    );
};

/// One ring of a channel, as it was at one moment.
#[derive(Debug)]
pub(super) struct Ring<'a> {
    pub(super) control: &'a Control,
    pub(super) buffer: *mut u8,
    pub(super) ring_size: u64,
    pub(super) subbuf_size: u64,
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
    /// The rings and the control blocks that the geometry describes must be mapped, the rings writable, the control
    /// blocks readable and writable, and must stay so until the process ends or executes another program (or, if
    /// `self` is wiped by `fork`, until the fork, in the child). The channel must be closed, with no sequence still
    /// running that began before it was; calls of `open` and `close` must not overlap.
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
        // Pairs with the event path's load of nr_rings, and with the one in `ring`: who sees the number of rings
        // sees the rest.
        self.nr_rings.store(geometry.nr_rings, Ordering::Release);
        Ok(())
    }

    /// Keeps new writers out. Those that are in a restartable sequence go on until it is restarted.
    pub fn close(&self) {
        self.nr_rings.store(0, Ordering::Relaxed);
        // Second: pairs with the order in `ring`. Who found rings there has the epoch before this one.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Writers may come in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.nr_rings.load(Ordering::Relaxed) != 0
    }

    /// The ring of a CPU, or nothing if the channel has none for it.
    pub(super) fn ring(&self, cpu: u32) -> Option<Ring<'_>> {
        // The epoch comes first: pairs with the order in `close`. If the channel is closed meanwhile, the sequence that
        // compares it fails.
        let epoch = self.epoch.load(Ordering::Acquire);
        // Pairs with the store in `open`.
        if cpu >= self.nr_rings.load(Ordering::Acquire) {
            return None;
        }
        let ring_size = self.ring_size.load(Ordering::Relaxed);
        let control = self.control.load(Ordering::Relaxed);
        let stride = self.control_stride.load(Ordering::Relaxed);
        let buffers = self.buffers.load(Ordering::Relaxed);
        Some(Ring {
            // SAFETY: `open`'s caller promised that the control blocks are mapped from then on, and `check` that the
            // alignment is right. Everything in a control block is atomic.
            control: unsafe {
                &*control
                    .add(cpu as usize * stride as usize)
                    .cast::<Control>()
            },
            buffer: buffers.wrapping_add(cpu as usize * ring_size as usize),
            ring_size,
            subbuf_size: self.subbuf_mask.load(Ordering::Relaxed) + 1,
            epoch,
        })
    }

    /// An id that no other event of this process has in this trace. For control channels.
    pub(crate) fn new_id(&self) -> Option<u16> {
        let given = self.ring(0)?.control.ids.fetch_add(1, Ordering::Relaxed);
        let id = given.checked_add(LTT_ID_MIN.into())?;
        u16::try_from(id).ok().filter(|id| *id <= LTT_ID_MAX)
    }

    /// The positions of all rings: head, and records lost.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..).map_while(|cpu| self.ring(cpu)).map(|ring| {
            // Pairs with the store of head that commits: for those who go on to look at the records.
            (
                ring.control.head.load(Ordering::Acquire),
                ring.control.lost.load(Ordering::Relaxed),
            )
        })
    }
}
