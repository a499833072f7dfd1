//! The state of this process's buffers, in memory that `fork` wipes.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use usertrace_sys::filter::Rules;
use usertrace_sys::limits::{CHANNELS, SLOTS};
use usertrace_sys::uapi::{
    LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN, LTT_META_MAX, LTT_TRACEBUF_LIMITED,
};

use super::coalescing_lock::CoalescingLock;
use super::condition::{ConditionTable, Scratch, SpareStack};
use super::event_id_cache::EventIdCache;
use super::info::BadArea;
use crate::context::List;
use crate::os::fork_private;
use crate::writer::{Channel, Readers};

/// The part of a slot's state that the event path does not need.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct SlotState {
    /// Generation of the trace whose rings are open; 0: none.
    pub(super) generation: AtomicU64,
    /// Generation of the trace whose buffer the kernel gave to this process, if it is known.
    pub(super) given: AtomicU64,
    /// The trace was active at the last update.
    pub(super) active: AtomicU32,
    /// Why the trace of generation `given` or `passed_over` gets no events: a number of a
    /// [`Refused`](super::status::Refused).
    pub(super) refused: AtomicU32,
    /// Generation of a trace whose rings do not fit into the slot, so that the kernel passes over
    /// it.
    pub(super) passed_over: AtomicU64,
    /// Number of events without a description, because the control channel was full.
    pub(super) undescribed: AtomicU32,
    /// Changes of the log of loaded objects that the trace has; those of an open slot.
    pub(super) objects: AtomicU32,
    /// A bit for each channel after main that was ever open here.
    pub(super) further: AtomicU32,
    /// Number of conditions that cannot be used. The events that they decide about are refused.
    pub(super) unusable: AtomicU32,
    /// Not 0: the rules of that routing have conditions.
    pub(super) conditional: AtomicU32,
    /// Not 0: the trace has triggers.
    pub(super) triggered: AtomicU32,
    /// Generation of the trace whose triggers were read while its rings were not open.
    pub(super) watched: AtomicU64,
    /// Not 0: the call sites have their channel for this slot.
    pub(super) routed: AtomicU32,
    /// The filter masks of that routing: the trace's at the control channel's index, then those of
    /// the channels after main.
    pub(super) masks: [AtomicU32; CHANNELS],
}

/// The state of one process, which its children do not inherit.
///
/// It lies in memory that `fork` wipes in the child, so all zeros must mean that nothing is known.
///
/// A page costs memory once it is written to. So what all processes write comes first, and arrays
/// of which most processes use the first elements at most come after it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct State {
    /// Its holder may change everything else here but the channels.
    lock: CoalescingLock,
    /// Not 0: the areas are mapped.
    pub(super) attached: AtomicU32,
    /// The update signal that the kernel sends; 0: events start updates.
    pub(super) signal: AtomicU32,
    /// The error of `alloc_tracebuf`; 0: none.
    pub(super) error: AtomicI32,
    /// One bit for each slot that the kernel gave to this process.
    pub(super) given: AtomicU32,
    /// One bit for each slot whose trace is gone, but whose writers could not be waited for. Such a
    /// slot is never used again.
    pub(super) dead: AtomicU32,
    /// Not 0: `membarrier` can restart running sequences.
    pub(super) restarts: AtomicU32,
    /// Generation of the info area at the last update.
    pub(super) generation: AtomicU64,
    pub(super) buffers: AtomicPtr<u8>,
    pub(super) buffers_slot_len: AtomicU64,
    pub(super) control_area: AtomicPtr<u8>,
    pub(super) control_slot_len: AtomicU64,
    pub(super) info: AtomicPtr<u8>,
    pub(super) info_len: AtomicU64,
    /// Slots that the areas have and that this library supports.
    pub(super) nr_slots: AtomicU32,
    /// Slots that the kernel reported.
    pub(super) reported_slots: AtomicU32,
    /// `LTT_TRACEBUF_*`.
    pub(super) status: AtomicU32,
    /// Not 0: the number of an [`AreaField`](super::info::AreaField) with an invalid value.
    pub(super) bad: AtomicU32,
    /// The invalid value of `bad`.
    pub(super) bad_value: AtomicU64,
    /// Changes each time that threads must query their contexts again.
    pub(super) stamp: AtomicU64,
    /// Not 0: the conditions are not those of the current routing.
    pub(super) conditions_stale: AtomicU32,
    /// Generation of the modules at the last update.
    pub(super) modules: AtomicU32,
    /// The sequence of [`ProcessRules`](super::process_rules::ProcessRules) that `process_rules`
    /// was copied from.
    pub(super) process_rules_seen: AtomicU32,
    pub(super) slots: [SlotState; SLOTS],
    /// The only part that the event path reads. Those of the first slot, which most processes use
    /// alone, lie in the page of all that is above.
    pub(super) channels: [[Channel; CHANNELS]; SLOTS],
    /// The buffer in which descriptions are composed.
    text: Text,
    /// The rules of each slot that the current routing follows.
    rules: [UnsafeCell<Rules>; SLOTS],
    /// The rules that replace all of them if `process_rules_seen` is not 0.
    process_rules: UnsafeCell<Rules>,
    /// The contexts of each channel, indexed as `channels` is.
    pub(super) contexts: [[List; CHANNELS]; SLOTS],
    /// Threads that write to rings without an rseq sequence.
    pub(super) readers: Readers,
    /// Ids of events whose library was unloaded.
    event_ids: UnsafeCell<EventIdCache>,
    /// The conditions of all traces.
    pub(super) conditions: ConditionTable,
    /// Memory for compiling conditions.
    scratch: UnsafeCell<Scratch>,
    spare_stack: UnsafeCell<SpareStack>,
}

/// A buffer for a description. It is aligned so that the first rules, which lie behind it, are in
/// the same page.
#[derive(Debug)]
#[repr(C, align(2048))]
struct Text(UnsafeCell<[u64; LTT_META_MAX / 8]>);

const _: () = {
    const fn page(offset: usize) -> usize {
        offset / 4096
    }
    let main = offset_of!(State, channels) + 2 * size_of::<Channel>();
    assert!(page(main) == 0);
    assert!(page(offset_of!(State, text)) == page(offset_of!(State, rules)));
};

// SAFETY: all fields are atomic but `text`, `scratch`, `spare_stack`, `rules`, `process_rules` and
// `event_ids`. These are reached only through a `StateGuard`, which only the lock's holder has.
unsafe impl Sync for State {}

impl State {
    /// Maps a state in memory that `fork` wipes in the child; none if there is no such memory.
    pub(super) fn map() -> Option<NonNull<Self>> {
        // SAFETY: all zeros is a valid state, in which nothing is known.
        unsafe { fork_private::map() }
    }

    /// Chooses whether the child of the next `fork` finds this state kept or wiped. Preserves
    /// `errno`.
    pub(super) fn keep(&self, keep: bool) {
        // SAFETY: `fork_private::map` made the mapping of this state. If the call is forbidden,
        // nothing changes.
        unsafe { fork_private::set_wiped(self, !keep) };
    }

    /// Resets the state in place, if no other state can be mapped.
    ///
    /// # Safety
    /// The process must have only one thread.
    pub(super) unsafe fn forget(&self) {
        let start = std::ptr::from_ref(self).cast_mut();
        // SAFETY: all zeros is a valid state, all of it is in cells, and the contract of this
        // function is that no other thread exists.
        unsafe { start.write_bytes(0, 1) };
    }

    /// Makes threads query their contexts again. `stamp` must differ from all earlier ones.
    pub(super) fn renew_threads(&self, stamp: u64) {
        // Relaxed: threads only compare it with the stamp that they cached.
        self.stamp.store(stamp, Ordering::Relaxed);
    }

    pub(super) fn is_attached(&self) -> bool {
        // Pairs with the store at the end of `attach`, after those of the areas' addresses.
        self.attached.load(Ordering::Acquire) != 0
    }

    /// The invalid value that the kernel reported for the areas, if any.
    pub(super) fn bad_area(&self) -> Option<BadArea> {
        // Pairs with the store in `set_bad_area`, which follows that of the value.
        let field = self.bad.load(Ordering::Acquire);
        BadArea::from_number(field, self.bad_value.load(Ordering::Relaxed))
    }

    pub(super) fn set_bad_area(&self, bad: BadArea) {
        self.bad_value.store(bad.value, Ordering::Relaxed);
        // Pairs with the load in `bad_area`.
        self.bad.store(bad.field as u32, Ordering::Release);
    }

    /// The address that identifies a slot to the kernel.
    pub(super) fn buffer(&self, slot: usize) -> Option<NonNull<u8>> {
        let len = self.buffers_slot_len.load(Ordering::Relaxed) as usize;
        if slot >= self.nr_slots.load(Ordering::Relaxed) as usize {
            return None;
        }
        let buffers = self.buffers.load(Ordering::Relaxed);
        NonNull::new(buffers.wrapping_add(slot * len))
    }

    /// The size of a write-area slot, if `RLIMIT_AS` reduced it.
    pub(super) fn limited(&self) -> Option<u64> {
        let limited =
            self.is_attached() && self.status.load(Ordering::Relaxed) & LTT_TRACEBUF_LIMITED != 0;
        limited.then(|| self.buffers_slot_len.load(Ordering::Relaxed))
    }

    pub(super) fn control(&self, slot: usize) -> &Channel {
        &self.channels[slot][LTT_CHANNEL_CONTROL]
    }

    pub(super) fn main(&self, slot: usize) -> &Channel {
        &self.channels[slot][LTT_CHANNEL_MAIN]
    }

    /// The event channels of a slot, with their indices: main, and those after it that were ever
    /// open.
    pub(super) fn event_channels(&self, slot: usize) -> impl Iterator<Item = (usize, &Channel)> {
        let further = self.slots[slot].further.load(Ordering::Relaxed);
        (LTT_CHANNEL_MAIN..CHANNELS)
            .filter(move |&index| index == LTT_CHANNEL_MAIN || further & (1 << index) != 0)
            .map(move |index| (index, &self.channels[slot][index]))
    }

    /// All channels of a slot that were ever open.
    pub(super) fn all_channels(&self, slot: usize) -> impl Iterator<Item = &Channel> {
        let event_channels = self.event_channels(slot).map(|(_, channel)| channel);
        std::iter::once(self.control(slot)).chain(event_channels)
    }

    /// Runs `body` with the lock. If another thread, or the code that this interrupted, holds it,
    /// that holder runs its own body once more; see [`CoalescingLock::run`].
    pub(super) fn locked(&self, mut body: impl FnMut(&mut StateGuard<'_>)) {
        self.lock.run(|| body(&mut StateGuard(self)));
    }
}

/// Proof that the state's lock is held for `'a`. Only [`State::locked`] makes one, and no reference
/// from it outlives the function that gets it.
#[derive(Debug)]
pub(super) struct StateGuard<'a>(&'a State);

impl<'a> StateGuard<'a> {
    /// The rules of a slot.
    pub(super) fn rules(&mut self, slot: usize) -> &mut Rules {
        // SAFETY: the lock's holder has the only guard, which this borrows exclusively.
        unsafe { &mut *self.0.rules[slot].get() }
    }

    /// The rules that replace those of all slots.
    pub(super) fn process_rules(&mut self) -> &mut Rules {
        // SAFETY: as in `rules`.
        unsafe { &mut *self.0.process_rules.get() }
    }

    /// The triggers of a slot's trace, and memory for compiling their conditions.
    pub(super) fn triggers_and_scratch(&mut self, slot: usize) -> (&Rules, &mut Scratch) {
        // SAFETY: as in `rules`; these are two objects.
        unsafe { (&*self.0.rules[slot].get(), &mut *self.0.scratch.get()) }
    }

    /// The rules that a slot follows, and memory for compiling their conditions.
    pub(super) fn rules_and_scratch(&mut self, slot: usize) -> (&Rules, &mut Scratch) {
        let rules = match self.0.process_rules_seen.load(Ordering::Relaxed) {
            0 => &self.0.rules[slot],
            _ => &self.0.process_rules,
        };
        // SAFETY: as in `rules`; these are two objects.
        unsafe { (&*rules.get(), &mut *self.0.scratch.get()) }
    }

    /// Likewise, and the rules of the slot's own trace, which say what its channels count.
    pub(super) fn all_rules_and_scratch(&mut self, slot: usize) -> (&Rules, &Rules, &mut Scratch) {
        let own = self.0.rules[slot].get();
        let (rules, scratch) = self.rules_and_scratch(slot);
        // SAFETY: as in `rules`; both are only read as long as `self` is borrowed.
        (rules, unsafe { &*own }, scratch)
    }

    /// The rules of a slot, and the buffer in which descriptions are composed.
    pub(super) fn rules_and_text(&mut self, slot: usize) -> (&Rules, &mut [u64; LTT_META_MAX / 8]) {
        // SAFETY: as in `rules`; these are two objects.
        unsafe { (&*self.0.rules[slot].get(), &mut *self.0.text.0.get()) }
    }

    /// Calls `body` on a stack of its own, with little use of the current one. Signals are blocked,
    /// as always with the lock.
    pub(super) fn on_spare_stack(&mut self, mut body: impl FnMut(&mut Self)) {
        let stack = self.0.spare_stack.get();
        // SAFETY: the lock's holder has the only guard, and `body` does not call this function
        // again. All updates block signals.
        unsafe { SpareStack::run(stack, &mut || body(self)) };
    }

    /// The ids of events whose library was unloaded.
    pub(super) fn event_ids(&mut self) -> &mut EventIdCache {
        // SAFETY: as in `rules`.
        unsafe { &mut *self.0.event_ids.get() }
    }

    /// The buffer in which descriptions are composed.
    pub(super) fn text(&mut self) -> &mut [u64; LTT_META_MAX / 8] {
        // SAFETY: as in `rules`.
        unsafe { &mut *self.0.text.0.get() }
    }
}
