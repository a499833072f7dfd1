//! What the runtime knows about this process's buffers.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use usertrace_sys::filter::Rules;
use usertrace_sys::limits::{CHANNELS, SLOTS};
use usertrace_sys::uapi::{
    LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN, LTT_META_MAX, LTT_TRACEBUF_LIMITED,
};

use super::coalescing_lock::CoalescingLock;
use super::event_id_cache::EventIdCache;
use super::fork_private;
use super::info::BadArea;
use crate::context::List;
use crate::writer::{Channel, Readers};

/// A slot, as far as the event path need not know it.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct SlotState {
    /// Of the trace whose rings the channels are; 0: none.
    pub(super) generation: AtomicU64,
    /// Of the trace whose buffer the kernel gave to this process, if it is known which that is.
    pub(super) given: AtomicU64,
    /// The trace was active at the last update.
    pub(super) active: AtomicU32,
    /// Why no events come into the trace that `given` is about, or `passed_over`: a number of a
    /// [`Refused`](super::status::Refused).
    pub(super) refused: AtomicU32,
    /// Of the trace whose rings do not fit into the slot, so that the kernel passes over it.
    pub(super) passed_over: AtomicU64,
    /// Events that could not be described, because the control channel was full.
    pub(super) undescribed: AtomicU32,
    /// A bit for each channel behind main that was ever open here.
    pub(super) further: AtomicU32,
    /// Not 0: the callsites know which channel they go to here.
    pub(super) routed: AtomicU32,
    /// Filter masks by which they were told: the trace's, at the control channel's index, and those
    /// behind main.
    pub(super) masks: [AtomicU32; CHANNELS],
}

/// Everything that is true of one process and not of its children.
///
/// It lies in memory that `fork` wipes in the child, so all zeros must mean: nothing is known yet.
#[derive(Debug)]
#[repr(C)]
pub(super) struct State {
    /// The event path reads these, and nothing else here. By the index of the channel first, so
    /// that what most traces do not have lies in pages that nobody comes to.
    pub(super) channels: [[Channel; SLOTS]; CHANNELS],
    pub(super) slots: [SlotState; SLOTS],
    /// Who holds it may change everything else here.
    lock: CoalescingLock,
    /// Not 0: the areas are known.
    pub(super) attached: AtomicU32,
    /// Why there are no areas.
    pub(super) error: AtomicI32,
    /// One bit for each slot that the kernel gave to this process.
    pub(super) given: AtomicU32,
    /// One bit for each slot whose trace is gone, but whose writers could not be waited for: never
    /// to be used again.
    pub(super) dead: AtomicU32,
    /// Not 0: the kernel restarts running sequences on demand.
    pub(super) restarts: AtomicU32,
    /// Of the info area, at the last update.
    pub(super) generation: AtomicU64,
    pub(super) buffers: AtomicPtr<u8>,
    pub(super) buffers_slot_len: AtomicU64,
    pub(super) control_area: AtomicPtr<u8>,
    pub(super) control_slot_len: AtomicU64,
    pub(super) info: AtomicPtr<u8>,
    pub(super) info_len: AtomicU64,
    /// Slots of the areas that there are, and that this library has room for.
    pub(super) nr_slots: AtomicU32,
    /// Slots of the areas that the kernel told of.
    pub(super) told_slots: AtomicU32,
    /// `LTT_TRACEBUF_*`.
    pub(super) status: AtomicU32,
    /// Not 0: the number of a [`Told`](super::info::Told), which cannot be what it is.
    pub(super) bad: AtomicU32,
    /// What it is.
    pub(super) bad_value: AtomicU64,
    /// What payloads begin with, as `channels`.
    pub(super) contexts: [[List; SLOTS]; CHANNELS],
    /// Another number each time that threads are to ask anew what they are.
    pub(super) stamp: AtomicU64,
    /// Who is in rings that no sequence writes.
    pub(super) visitors: Readers,
    /// Of the modules, at the last update.
    pub(super) modules: AtomicU32,
    /// Events whose library is gone.
    known: UnsafeCell<EventIdCache>,
    /// Where a description is put together.
    text: UnsafeCell<[u64; LTT_META_MAX / 8]>,
    /// Rules of each slot, by which the callsites were told.
    rules: [UnsafeCell<Rules>; SLOTS],
    /// Those in place of them, if `wanted_seen` is not 0.
    wanted: UnsafeCell<Rules>,
    /// Which of [`Wanted`](super::wanted::Wanted) these are.
    pub(super) wanted_seen: AtomicU32,
}

// SAFETY: all is atomic but `text`, `rules`, `wanted` and `known`, which only the holder of the
// lock may get.
unsafe impl Sync for State {}

impl State {
    /// A state in memory that a child of `fork` finds wiped; nothing if there is no such memory.
    pub(super) fn map() -> Option<NonNull<Self>> {
        // SAFETY: zeros are a state in which nothing is known yet.
        unsafe { fork_private::map() }
    }

    /// Whether the child of the next `fork` is to find this as it is, and not wiped. Leaves `errno`
    /// alone.
    pub(super) fn keep(&self, keep: bool) {
        let advice = if keep {
            libc::MADV_KEEPONFORK
        } else {
            libc::MADV_WIPEONFORK
        };
        // SAFETY: of the mapping that this lies in, whose contents do not change. If it is
        // forbidden, all stays as it was.
        unsafe {
            syscalls::raw::syscall3(
                syscalls::Sysno::madvise as usize,
                std::ptr::from_ref(self) as usize,
                size_of::<Self>(),
                advice as usize,
            );
        }
    }

    /// Forgets everything, if there is no other state to be had.
    ///
    /// # Safety
    /// There must be one thread.
    pub(super) unsafe fn forget(&self) {
        let start = std::ptr::from_ref(self).cast_mut();
        // SAFETY: all zeros is a state; all of it is in cells, and no other thread
        // looks at it: there is one, as this function's caller promises.
        unsafe { start.write_bytes(0, 1) };
    }

    /// Has threads ask anew what they are: `stamp` is another number than before.
    pub(super) fn renew_threads(&self, stamp: u64) {
        // Relaxed: threads compare it with what they remember, and nothing else depends on it.
        self.stamp.store(stamp, Ordering::Relaxed);
    }

    pub(super) fn is_attached(&self) -> bool {
        // Pairs with the store at the end of attaching: the areas' addresses are there.
        self.attached.load(Ordering::Acquire) != 0
    }

    /// What the kernel told of the areas that cannot be.
    pub(super) fn bad_area(&self) -> Option<BadArea> {
        // Pairs with the store in `set_bad_area`: its value is there.
        let told = self.bad.load(Ordering::Acquire);
        BadArea::from_number(told, self.bad_value.load(Ordering::Relaxed))
    }

    pub(super) fn set_bad_area(&self, bad: BadArea) {
        self.bad_value.store(bad.value, Ordering::Relaxed);
        // Pairs with the load in `bad_area`.
        self.bad.store(bad.told as u32, Ordering::Release);
    }

    /// The size of a slot of the write area, if a limit of this process's address space made it
    /// smaller.
    pub(super) fn limited(&self) -> Option<u64> {
        let limited =
            self.is_attached() && self.status.load(Ordering::Relaxed) & LTT_TRACEBUF_LIMITED != 0;
        limited.then(|| self.buffers_slot_len.load(Ordering::Relaxed))
    }

    pub(super) fn control(&self, slot: usize) -> &Channel {
        &self.channels[LTT_CHANNEL_CONTROL][slot]
    }

    pub(super) fn main(&self, slot: usize) -> &Channel {
        &self.channels[LTT_CHANNEL_MAIN][slot]
    }

    /// The channels of a slot that events go to, with their indices: main, and those behind it that
    /// were ever open.
    pub(super) fn of_events(&self, slot: usize) -> impl Iterator<Item = (usize, &Channel)> {
        let further = self.slots[slot].further.load(Ordering::Relaxed);
        (LTT_CHANNEL_MAIN..CHANNELS)
            .filter(move |&index| index == LTT_CHANNEL_MAIN || further & (1 << index) != 0)
            .map(move |index| (index, &self.channels[index][slot]))
    }

    /// All channels of a slot that were ever open.
    pub(super) fn all(&self, slot: usize) -> impl Iterator<Item = &Channel> {
        let of_events = self.of_events(slot).map(|(_, channel)| channel);
        std::iter::once(self.control(slot)).chain(of_events)
    }

    /// Runs `body` with the lock. If another thread, or what this interrupted, has it, that one
    /// runs what it had to run once more, see [`CoalescingLock::run`].
    pub(super) fn locked(&self, mut body: impl FnMut(&mut StateGuard<'_>)) {
        self.lock.run(|| body(&mut StateGuard(self)));
    }
}

/// The state's lock, as long as `'a`: only [`State::locked`] makes one, and nothing of what it
/// leads to outlives the function that it is given to.
#[derive(Debug)]
pub(super) struct StateGuard<'a>(&'a State);

impl<'a> StateGuard<'a> {
    /// The rules of a slot.
    pub(super) fn rules(&mut self, slot: usize) -> &mut Rules {
        // SAFETY: there is one guard, which this borrows.
        unsafe { &mut *self.0.rules[slot].get() }
    }

    /// The rules in place of all of them.
    pub(super) fn wanted(&mut self) -> &mut Rules {
        // SAFETY: as in `rules`.
        unsafe { &mut *self.0.wanted.get() }
    }

    /// The ids of events whose libraries are gone.
    pub(super) fn known(&mut self) -> &mut EventIdCache {
        // SAFETY: as in `rules`.
        unsafe { &mut *self.0.known.get() }
    }

    /// Where a description is put together.
    pub(super) fn text(&mut self) -> &mut [u64; LTT_META_MAX / 8] {
        // SAFETY: as in `rules`.
        unsafe { &mut *self.0.text.get() }
    }
}
