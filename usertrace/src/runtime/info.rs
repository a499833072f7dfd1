//! Reads the info area.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use usertrace_sys::uapi::{
    LTT_INFO_MAGIC, LTT_INFO_PAGE, LTT_MAX_CHANNELS, LTT_MAX_TRACES, LttInfo, LttInfoChannel,
    LttInfoFilter, LttInfoSlot, LttInfoTrace,
};

use super::filter::Rules;

/// Bytes of an info area, without rules.
pub(super) const INFO_LEN: u64 = ((1 + LTT_MAX_TRACES) * LTT_INFO_PAGE) as u64;

/// Bytes of one that has rules.
pub(super) const INFO_LEN_WITH_RULES: u64 = ((1 + 2 * LTT_MAX_TRACES) * LTT_INFO_PAGE) as u64;

/// How often a reader tries. The kernel writes for less than a microsecond, and is not preempted meanwhile.
const TRIES: u32 = 1 << 20;

/// The info area: the kernel writes it, under a seqlock, while this process reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Info(NonNull<u8>);

/// There is a trace in a slot, and it was started, or allocated, at least once: before that, its rings have no layout, and
/// the kernel gives no buffers of it.
pub(super) fn is_laid_out(slot: &LttInfoSlot) -> bool {
    slot.generation != 0 && slot.nr_channels != 0
}

impl Info {
    /// # Safety
    /// `area` must be an info area of [`INFO_LEN`] bytes that stays mapped.
    pub(super) unsafe fn new(area: NonNull<u8>) -> Self {
        Self(area)
    }

    /// Changes with each change of the area. Only a hint: it is read without the seqlock.
    pub(super) fn generation(self) -> u64 {
        // SAFETY: inside the area, aligned, and atomic.
        unsafe { self.at::<AtomicU64>(offset_of!(LttInfo, generation)) }.load(Ordering::Relaxed)
    }

    /// What the area says about a slot; nothing if the kernel has not written it yet.
    ///
    /// Like [`channel`](Self::channel), it returns little: this runs on signal stacks, which may have a few KiB.
    pub(super) fn slot(self, slot: usize) -> Option<LttInfoSlot> {
        // SAFETY: the magic number lies inside the area.
        let magic = unsafe { self.at::<AtomicU32>(offset_of!(LttInfo, magic)) };
        if slot >= LTT_MAX_TRACES || magic.load(Ordering::Relaxed) != LTT_INFO_MAGIC {
            return None;
        }
        let head = offset_of!(LttInfo, slot) + slot * size_of::<LttInfoSlot>();
        // SAFETY: it lies inside the area; any bytes are good.
        self.consistent(|| unsafe { self.copy(head) })
    }

    /// What the area says about a channel of the trace with this generation, if that is in the slot.
    pub(super) fn channel(
        self,
        slot: usize,
        generation: u64,
        channel: usize,
    ) -> Option<LttInfoChannel> {
        if slot >= LTT_MAX_TRACES || channel >= LTT_MAX_CHANNELS {
            return None;
        }
        let trace = (1 + slot) * LTT_INFO_PAGE;
        let at = trace + offset_of!(LttInfoTrace, channel) + channel * size_of::<LttInfoChannel>();
        // Of what a trace's channels are like, only mode and filter change while it has this generation.
        let read = || {
            // SAFETY: both lie inside the area; any bytes are good.
            unsafe {
                let is: u64 = self.copy(trace + offset_of!(LttInfoTrace, generation));
                (is == generation).then(|| self.copy(at))
            }
        };
        self.consistent(read).flatten()
    }

    /// Makes `rules` those of the trace with this generation, and says whether they are others than before; nothing if that
    /// trace is not in the slot.
    ///
    /// # Safety
    /// The area must have [`INFO_LEN_WITH_RULES`] bytes.
    pub(super) unsafe fn rules(
        self,
        slot: usize,
        generation: u64,
        rules: &mut Rules,
    ) -> Option<bool> {
        if slot >= LTT_MAX_TRACES {
            return None;
        }
        let page = (1 + LTT_MAX_TRACES + slot) * LTT_INFO_PAGE;
        let mut changed = false;
        let read = || {
            // SAFETY: inside the area, by the caller's promise; any bytes are good.
            let (is, len): (u64, u32) = unsafe {
                (
                    self.copy(page + offset_of!(LttInfoFilter, generation)),
                    self.copy(page + offset_of!(LttInfoFilter, len)),
                )
            };
            // What was read while the kernel wrote is another one, too.
            changed |= is == generation
                && rules.copy(len as usize, |at| {
                    // SAFETY: likewise, as `copy` asks for no more than there is room for.
                    unsafe { self.copy(page + offset_of!(LttInfoFilter, rules) + at) }
                });
            is == generation
        };
        self.consistent(read)?.then_some(changed)
    }

    /// Reads until the kernel did not write meanwhile.
    fn consistent<T>(self, mut read: impl FnMut() -> T) -> Option<T> {
        // SAFETY: the counter lies inside the area.
        let seq = unsafe { self.at::<AtomicU32>(offset_of!(LttInfo, seq)) };
        for _ in 0..TRIES {
            // Pairs with the kernel's store at the end of a change: what is read below is not older.
            let before = seq.load(Ordering::Acquire);
            if before % 2 == 0 {
                let value = read();
                // Pairs with the kernel's barrier at the start of a change: if anything newer was read, the counter
                // that is read next is newer, too.
                fence(Ordering::Acquire);
                if seq.load(Ordering::Relaxed) == before {
                    return Some(value);
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// # Safety
    /// A `T` at that offset must lie inside the area, be aligned, and consist of atomics.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller's promise.
        unsafe { &*self.0.as_ptr().add(offset).cast::<T>() }
    }

    /// # Safety
    /// The bytes must lie inside the area, at a multiple of 4 and as many as a multiple of 4, and any bytes must be
    /// a value of `T`.
    unsafe fn copy<T: Copy>(&self, offset: usize) -> T {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        for at in (0..size_of::<T>()).step_by(4) {
            // SAFETY: the caller's promise; word by word and atomic, because the kernel may write meanwhile.
            unsafe {
                let word = self.at::<AtomicU32>(offset + at).load(Ordering::Relaxed);
                value
                    .as_mut_ptr()
                    .cast::<u8>()
                    .add(at)
                    .cast::<u32>()
                    .write_unaligned(word);
            }
        }
        // SAFETY: all of it was written.
        unsafe { value.assume_init() }
    }
}
