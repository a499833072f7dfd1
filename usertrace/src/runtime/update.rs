//! Updates: get this process's buffers, and follow traces as they come, change and go (A4, A6, C8).
//!
//! An update runs with the lock of the [`State`] held, possibly in a signal handler or inside
//! `malloc`. It must not allocate, wait, or change `errno`.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use syscalls::Errno;
use usertrace_sys::filter::{Accepted, Rules};
use usertrace_sys::limits::{CHANNELS, SLOTS};
use usertrace_sys::uapi::{
    LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN, LTT_CLOCK_MONOTONIC, LTT_ID_META, LTT_MAX_TRACES,
    LTT_PROTOCOL_COUNT, LTT_PROTOCOL_RSEQ, LTT_PROTOCOL_SHARED, LTT_SCOPE_CPU, LTT_SCOPE_GLOBAL,
    LTT_SCOPE_MM_CID, LTT_SCOPE_THREAD, LttInfo, LttInfoChannel, LttInfoSlot, LttRingControl,
    LttTracebuf,
};
use usertrace_sys::{Mode, Protocol, Scope};

use super::cmdline;
use super::condition::{Builder, Built, CountNames, TriggerList};
use super::info::{AreaField, BadArea, Info, InfoArea, is_laid_out};
use super::kernel::Kernel;
use super::modules::Modules;
use super::objects;
use super::shared::shared;
use super::state::{State, StateGuard};
use super::status::Refused;
use super::text::Text;
use crate::clock::{self, Source};
use crate::context::{Kind, List, ask_ahead};
use crate::event::{
    CONDITIONAL, COUNTED, Callsite, CountTarget, FlaggedAction, Section, TRIGGERING, WANTS_IP,
};
use crate::os::membarrier;
use crate::writer::{self, Channel, Geometry, Prefault, QuiescenceSlot, Rseq, WakeupMethod};

/// Rounds of one update. Changes that come after that are left to the next update.
const ROUNDS: u32 = 100;

/// The id of metadata records, in the form that the writer takes.
static META: AtomicU16 = AtomicU16::new(LTT_ID_META);

/// The context of one update.
pub(super) struct Updater {
    pub(super) kernel: &'static dyn Kernel,
    pub(super) state: &'static State,
    pub(super) modules: &'static Modules,
    pub(super) rseq: Option<Rseq>,
    pub(super) signo: u32,
}

impl<'a> StateGuard<'a> {
    /// Iterates over the call sites of all modules of this process.
    pub(super) fn callsites(
        &self,
        modules: &'static Modules,
    ) -> impl Iterator<Item = &'a Callsite> + use<'a> {
        // SAFETY: a module waits for the lock before it goes, and `self` proves that it is held for
        // `'a`.
        unsafe { modules.callsites() }
    }
}

impl Updater {
    /// Brings this process up to date.
    pub(super) fn run(&self, guard: &mut StateGuard<'_>) {
        if !self.state.is_attached() && self.state.error.load(Ordering::Relaxed) == 0 {
            // The call sites still have the masks of the parent process.
            for callsite in guard.callsites(self.modules) {
                callsite.set_mask(0);
                callsite.set_triggers(0);
                (0..SLOTS).for_each(|slot| callsite.forget(slot));
            }
            match self.attach() {
                // EAGAIN: another copy of this crate is attaching.
                Ok(()) | Err(Errno::EAGAIN) => {}
                Err(errno) => self.state.error.store(errno.into_raw(), Ordering::Relaxed),
            }
        }
        if self.state.is_attached() {
            self.update(guard);
        }
    }

    /// Caches the ids of the events of a module that goes.
    ///
    /// # Safety
    /// The section must be mapped.
    pub(super) unsafe fn keep_ids(&self, guard: &mut StateGuard<'_>, section: Section) {
        let event_ids = guard.event_ids();
        // SAFETY: the contract of this function: the section is mapped.
        for callsite in unsafe { section.callsites() } {
            for slot in 0..SLOTS {
                let generation = self.state.slots[slot].generation.load(Ordering::Relaxed);
                let id = callsite.id(slot).load(Ordering::Relaxed);
                if generation != 0 && id != 0 {
                    event_ids.keep(callsite.description(), slot, generation, id);
                }
            }
        }
    }

    fn attach(&self) -> Result<(), Errno> {
        let mut signo = self.signo;
        let areas = match self.kernel.alloc_tracebuf(signo) {
            // The kernel refuses the signal: another library has one that it handles (EEXIST), this
            // child shares its parent's memory (EPERM), or the program has replaced the handler
            // (EINVAL). Then events start updates.
            Err(Errno::EEXIST | Errno::EPERM | Errno::EINVAL) if signo != 0 => {
                signo = 0;
                self.kernel.alloc_tracebuf(signo)
            }
            areas => areas,
        }?;
        let state = self.state;
        state.signal.store(signo, Ordering::Relaxed);
        let (buffers, control, info) = addresses(&areas).map_err(|bad| {
            state.set_bad_area(bad);
            Errno::EPROTO
        })?;
        state.buffers.store(buffers, Ordering::Relaxed);
        state
            .buffers_slot_len
            .store(areas.buffers_stride, Ordering::Relaxed);
        state.control_area.store(control, Ordering::Relaxed);
        state
            .control_slot_len
            .store(areas.control_stride, Ordering::Relaxed);
        state.info.store(info, Ordering::Relaxed);
        state.info_len.store(areas.info_len, Ordering::Relaxed);
        let nr_slots = areas.nr_slots.min(SLOTS as u32);
        state.nr_slots.store(nr_slots, Ordering::Relaxed);
        state
            .reported_slots
            .store(areas.nr_slots, Ordering::Relaxed);
        state.status.store(areas.status, Ordering::Relaxed);
        if self.kernel.removes_traces() {
            let restarts = membarrier::register().is_ok();
            state.restarts.store(restarts.into(), Ordering::Relaxed);
        }
        state.renew_threads(shared().next_stamp());
        // Pairs with the load in `is_attached`.
        state.attached.store(1, Ordering::Release);
        Ok(())
    }

    /// Follows the traces until nothing changes.
    fn update(&self, guard: &mut StateGuard<'_>) {
        let Some(area) = area(self.state) else { return };
        let info = match area.info(self.state.reported_slots.load(Ordering::Relaxed)) {
            // The kernel writes the area with the first trace.
            None => return,
            Some(Ok(info)) => info,
            Some(Err(bad)) => return self.state.set_bad_area(bad),
        };
        let info = &info;
        for _ in 0..ROUNDS {
            let generation = info.generation();
            let (modules, objects) = (self.modules.generation(), objects::count());
            let has_more = modules != self.state.modules.load(Ordering::Relaxed);
            let is_steered = self.copy_process_rules(guard);
            let is_news = has_more
                || is_steered
                || generation != self.state.generation.load(Ordering::Relaxed);
            // Detach from gone traces first: only then does the kernel give buffers of new traces
            // in their slots.
            (0..SLOTS).for_each(|slot| self.detach(guard, slot, info));
            self.take_new_slots(info);
            for slot in 0..SLOTS {
                if has_more {
                    self.describe_new_modules(guard, slot);
                }
                if self.is_open(slot) {
                    self.describe_objects(guard, slot);
                }
                self.sync_slot(guard, slot, info, is_news);
            }
            if self.state.conditions_stale.swap(0, Ordering::Relaxed) != 0 {
                guard.on_spare_stack(|guard| self.build_conditions(guard));
            }
            self.set_masks(guard);
            self.state.generation.store(generation, Ordering::Relaxed);
            self.state.modules.store(modules, Ordering::Relaxed);
            if info.generation() == generation
                && self.modules.generation() == modules
                && objects::count() == objects
            {
                return;
            }
        }
    }

    /// Takes over rules that a control channel set. Returns whether they are new.
    fn copy_process_rules(&self, guard: &mut StateGuard<'_>) -> bool {
        let state = self.state;
        let seen = state.process_rules_seen.load(Ordering::Relaxed);
        let Some(now) = shared().process_rules.copy(seen, guard.process_rules()) else {
            return false;
        };
        state.process_rules_seen.store(now, Ordering::Relaxed);
        let slots = state.slots.iter();
        slots.for_each(|slot| slot.routed.store(0, Ordering::Relaxed));
        true
    }

    fn is_given(&self, slot: usize) -> bool {
        self.state.given.load(Ordering::Relaxed) & (1 << slot) != 0
    }

    fn is_dead(&self, slot: usize) -> bool {
        self.state.dead.load(Ordering::Relaxed) & (1 << slot) != 0
    }

    /// True if writers may enter a slot's rings.
    fn is_open(&self, slot: usize) -> bool {
        self.state.main(slot).is_open()
    }

    /// True if no thread is in a slot's rings outside of a restartable sequence.
    fn is_quiescent(&self, slot: usize) -> bool {
        self.state.all_channels(slot).all(Channel::is_quiescent)
    }

    /// Detaches from a slot whose trace is gone, and tells the kernel that this process no longer
    /// writes there (A9). The slot may already have another trace, whose buffer this process gets
    /// only after that.
    fn detach(&self, guard: &mut StateGuard<'_>, slot: usize, info: &Info) {
        let (Some(now), Some(buffer)) = (info.slot(slot), self.buffer(slot)) else {
            return;
        };
        let at = &self.state.slots[slot];
        let have = at.generation.load(Ordering::Relaxed);
        if have != 0 && have != now.generation {
            self.quiesce(guard, slot);
        }
        let given = at.given.load(Ordering::Relaxed);
        let is_other = given == 0 || given != now.generation;
        // A writer of a long record may still be in the slot, perhaps one that this update
        // interrupted. It starts another update when it leaves.
        if self.is_given(slot) && is_other && !self.is_dead(slot) && self.is_quiescent(slot) {
            self.query(slot, buffer);
        }
    }

    /// Asks the kernel whether this process has the buffer of the current trace of a slot. If it
    /// has that of an earlier trace, the kernel takes it back. The slot must be quiescent.
    fn query(&self, slot: usize, buffer: NonNull<u8>) -> bool {
        let has = self.kernel.update(&mut Some(buffer)).is_ok();
        if has {
            self.state.given.fetch_or(1 << slot, Ordering::Relaxed);
        } else {
            self.forget(slot);
        }
        has
    }

    /// Records that this process has no buffer in a slot.
    fn forget(&self, slot: usize) {
        let at = &self.state.slots[slot];
        at.given.store(0, Ordering::Relaxed);
        at.refused.store(0, Ordering::Relaxed);
        self.forget_triggers(slot);
        self.state.given.fetch_and(!(1 << slot), Ordering::Relaxed);
    }

    /// Records that the trace in a slot has no triggers.
    fn forget_triggers(&self, slot: usize) {
        let at = &self.state.slots[slot];
        at.watched.store(0, Ordering::Relaxed);
        if at.triggered.swap(0, Ordering::Relaxed) != 0 {
            self.state.conditions_stale.store(1, Ordering::Relaxed);
        }
    }

    /// Returns whether this process's buffer in a slot belongs to the trace that `now` describes.
    fn confirm(&self, slot: usize, buffer: NonNull<u8>, now: &LttInfoSlot, info: &Info) -> bool {
        let at = &self.state.slots[slot];
        let generation = now.generation;
        if at.given.load(Ordering::Relaxed) == generation {
            return true;
        }
        // The kernel may have given the buffer to another library in this process. If the slot has
        // the same trace before and after the query, the answer is about that trace.
        let same = |after: LttInfoSlot| after.generation == generation;
        let is = self.query(slot, buffer) && info.slot(slot).is_some_and(same);
        if is {
            at.given.store(generation, Ordering::Relaxed);
        }
        is
    }

    /// Takes the slots that the kernel has for this process and did not give to it yet. The kernel
    /// takes none back here: in the slot of a gone trace this process keeps its buffer, and gets no
    /// other, until `detach` queries it.
    fn take_new_slots(&self, info: &Info) {
        let is_new = |slot: usize| {
            !self.is_given(slot) && info.slot(slot).is_some_and(|now| is_laid_out(&now))
        };
        if !(0..SLOTS).any(is_new) {
            return;
        }
        for _ in 0..LTT_MAX_TRACES {
            let mut buffer = None;
            if self.kernel.update(&mut buffer).is_err() {
                return;
            }
            let Some(buffer) = buffer else {
                return;
            };
            let Some(slot) = self.slot_of(buffer) else {
                // This library supports fewer slots.
                continue;
            };
            self.forget(slot);
            self.state.given.fetch_or(1 << slot, Ordering::Relaxed);
        }
    }

    /// The address that identifies a slot to the kernel.
    fn buffer(&self, slot: usize) -> Option<NonNull<u8>> {
        self.state.buffer(slot)
    }

    fn slot_of(&self, buffer: NonNull<u8>) -> Option<usize> {
        (0..SLOTS).find(|&slot| self.buffer(slot) == Some(buffer))
    }

    /// Opens and follows the trace in a slot. `is_news`: something changed since the last update.
    fn sync_slot(&self, guard: &mut StateGuard<'_>, slot: usize, info: &Info, is_news: bool) {
        let state = self.state;
        let (Some(now), Some(buffer)) = (info.slot(slot), self.buffer(slot)) else {
            return;
        };
        let at = &state.slots[slot];
        let passed_over = at.passed_over.load(Ordering::Relaxed);
        if passed_over != 0 && passed_over != now.generation {
            at.passed_over.store(0, Ordering::Relaxed);
            at.refused.store(0, Ordering::Relaxed);
        }
        let have = at.generation.load(Ordering::Relaxed);
        let other = have != 0 && have != now.generation;
        if !is_laid_out(&now) || other || self.is_dead(slot) {
            // The slot changed after `detach`: the next round handles that.
            return;
        }
        if have == 0 && !(self.is_quiescent(slot) && self.confirm(slot, buffer, &now, info)) {
            self.record_limit(slot, &now, info);
            return;
        }
        let active = now.active != 0;
        if have == 0 && active && at.refused.load(Ordering::Relaxed) == 0 {
            let refused = self.open(guard, slot, buffer, &now, info).err();
            let refused = refused.map_or(0, |refused| refused as u32);
            at.refused.store(refused, Ordering::Relaxed);
        }
        if self.is_open(slot) && (have == 0 || is_news) {
            self.sync_channels(guard, slot, &now, info);
        }
        if !self.is_open(slot) {
            self.watch(guard, slot, now.generation, info, is_news);
        }
        at.active.store(active.into(), Ordering::Relaxed);
    }

    /// Follows the triggers of a trace whose rings are not open, so that an event can start it.
    #[inline(never)]
    fn watch(
        &self,
        guard: &mut StateGuard<'_>,
        slot: usize,
        generation: u64,
        info: &Info,
        is_news: bool,
    ) {
        let at = &self.state.slots[slot];
        let watched = at.watched.swap(generation, Ordering::Relaxed);
        if !is_news && watched == generation {
            return;
        }
        if self.read_rules(guard, slot, generation, info) || watched != generation {
            self.note_triggers(guard, slot);
        }
    }

    /// Notes whether the rules of a slot, which have changed, have triggers.
    fn note_triggers(&self, guard: &mut StateGuard<'_>, slot: usize) {
        let triggered = u32::from(guard.rules(slot).has_triggers());
        let before = &self.state.slots[slot].triggered;
        if triggered | before.swap(triggered, Ordering::Relaxed) != 0 {
            self.state.conditions_stale.store(1, Ordering::Relaxed);
        }
    }

    /// Notes that the rings of the trace that `now` describes do not fit into the slots of this
    /// process, if so.
    #[inline(never)]
    fn record_limit(&self, slot: usize, now: &LttInfoSlot, info: &Info) {
        let at = &self.state.slots[slot];
        if self.is_given(slot)
            || self.state.limited().is_none()
            || at.passed_over.load(Ordering::Relaxed) == now.generation
        {
            return;
        }
        let len = self.state.buffers_slot_len.load(Ordering::Relaxed);
        let fits = |index| {
            let channel = info.channel(slot, now.generation, index);
            channel.is_none_or(|channel| rings_end(&channel).is_some_and(|end| end <= len))
        };
        if (0..now.nr_channels as usize).all(fits) {
            return;
        }
        at.passed_over.store(now.generation, Ordering::Relaxed);
        at.refused.store(Refused::Limited as u32, Ordering::Relaxed);
    }

    /// Opens the rings of a new trace, and describes all events in them (E6). The error says why
    /// the trace gets no events.
    fn open(
        &self,
        guard: &mut StateGuard<'_>,
        slot: usize,
        buffer: NonNull<u8>,
        now: &LttInfoSlot,
        info: &Info,
    ) -> Result<(), Refused> {
        let state = self.state;
        let at = &state.slots[slot];
        let clock = match info.clock(slot, now.generation) {
            None => return Err(Refused::Layout),
            Some(clock::NUMBER) => Source::Processor,
            Some(LTT_CLOCK_MONOTONIC) => Source::Monotonic,
            Some(_) => return Err(Refused::Clock),
        };
        self.read_rules(guard, slot, now.generation, info);
        // The order matters: main is opened last.
        self.open_channel(guard, slot, LTT_CHANNEL_CONTROL, now, info, clock)
            .ok_or(Refused::Layout)?;
        self.describe_all(guard, slot, now.generation);
        self.describe_process(guard, slot);
        at.objects.store(0, Ordering::Relaxed);
        self.describe_objects(guard, slot);
        for index in LTT_CHANNEL_MAIN + 1..CHANNELS {
            // A channel that cannot be written counts as missing: its events go where they would go
            // without it.
            self.open_channel(guard, slot, index, now, info, clock);
        }
        let Some(scope) = self.open_channel(guard, slot, LTT_CHANNEL_MAIN, now, info, clock) else {
            // The trace may just have gone. The descriptions in its control channel are void for
            // another trace, and a thread may be in one of the further channels already.
            self.quiesce(guard, slot);
            return Err(Refused::Layout);
        };
        at.generation.store(now.generation, Ordering::Relaxed);
        // The kernel creates the consumer's file (C4). On failure, the events are in the ring
        // nevertheless.
        let _ = self.kernel.switch(buffer);
        if scope == Scope::MmCid && !writer::has_mm_cid() {
            return Err(Refused::NoMmCid);
        }
        Ok(())
    }

    /// Opens a channel of a slot, if the trace has it and this library can write it. Returns its
    /// scope.
    ///
    /// A function of its own to save stack: `open`'s other callees run on the rest of a signal
    /// stack.
    #[inline(never)]
    fn open_channel(
        &self,
        guard: &mut StateGuard<'_>,
        slot: usize,
        index: usize,
        now: &LttInfoSlot,
        info: &Info,
        clock: Source,
    ) -> Option<Scope> {
        if now.nr_channels as usize <= index {
            return None;
        }
        let described = info.channel(slot, now.generation, index)?;
        let mut geometry = self.geometry(slot, index, &described)?;
        geometry.clock = clock;
        if geometry.protocol == Protocol::Count {
            self.describe_counts(guard, slot, index)?;
        } else {
            geometry.contexts = self.describe_contexts(guard, slot, index);
        }
        let scope = geometry.scope;
        if index > LTT_CHANNEL_MAIN {
            if scope == Scope::MmCid && !writer::has_mm_cid() {
                return None;
            }
            // Before the channel is opened: `is_quiescent` must check it as well.
            self.state.slots[slot]
                .further
                .fetch_or(1 << index, Ordering::Relaxed);
        }
        // SAFETY: `geometry` checked that the rings lie inside the areas, which stay mapped. The
        // channel is closed and quiescent: either it never was open, or `quiesce` waited for its
        // writers.
        unsafe { self.state.channels[slot][index].open(&geometry) }.ok()?;
        Some(scope)
    }

    /// Copies the rules of the trace in a slot, which has this generation. Returns whether they
    /// changed.
    fn read_rules(
        &self,
        guard: &mut StateGuard<'_>,
        slot: usize,
        generation: u64,
        info: &Info,
    ) -> bool {
        let rules = guard.rules(slot);
        info.rules(slot, generation, rules).unwrap_or_else(|| {
            // Another trace's rules, or a torn copy.
            rules.clear();
            true
        })
    }

    /// Writes the contexts of a channel to the control channel. Returns whether the channel has
    /// any.
    ///
    /// The channel must be closed.
    #[inline(never)]
    fn describe_contexts(&self, guard: &mut StateGuard<'_>, slot: usize, index: usize) -> bool {
        let list = &self.state.contexts[slot][index];
        list.clear();
        if index == LTT_CHANNEL_CONTROL {
            return false;
        }
        let rules = guard.rules(slot);
        rules.each_context(index, |name| {
            // Skip unknown contexts: the description lists those that are written.
            if let Some(kind) = Kind::of_name(name, &shared().apps) {
                // The kernel refuses a second call stack.
                if !matches!(kind, Kind::Callstack(_)) || list.frames() == 0 {
                    list.push(kind);
                }
            }
        });
        if list.is_empty() {
            return false;
        }
        let text = contexts_text(list, index, guard.text());
        let channel = self.state.control(slot);
        // SAFETY: as in `describe`.
        let write =
            |words| unsafe { writer::write_words(self.rseq, channel, &META, words).is_ok() };
        let written = text.is_some_and(write);
        if written {
            // A new trace needs fresh values of threads' contexts.
            let stamp = shared().next_stamp();
            self.state.renew_threads(stamp);
            ask_ahead(list, &self.state.readers, || &shared().apps, stamp);
        } else {
            // The control channel has no room for the description.
            list.clear();
        }
        written
    }

    /// Writes to the control channel what a channel counts by. None if there is no room.
    #[inline(never)]
    fn describe_counts(&self, guard: &mut StateGuard<'_>, slot: usize, index: usize) -> Option<()> {
        let (rules, room) = guard.rules_and_text(slot);
        let mut text = Text::new(room);
        text.put(b"#");
        text.put_number(index as u16);
        for name in [rules.value_of(index), rules.key_of(index)] {
            text.put(b" ");
            text.put(name.unwrap_or(b"-"));
        }
        let words = text.finish()?;
        let channel = self.state.control(slot);
        // SAFETY: as in `describe`.
        unsafe { writer::write_words(self.rseq, channel, &META, words) }.ok()
    }

    /// Follows changes of a trace with open rings: its modes, which events it wants, and in which
    /// channel.
    fn sync_channels(
        &self,
        guard: &mut StateGuard<'_>,
        slot: usize,
        now: &LttInfoSlot,
        info: &Info,
    ) {
        let state = self.state;
        let at = &state.slots[slot];
        let masks = |index: usize, mask| at.masks[index].swap(mask, Ordering::Relaxed) != mask;
        let mut changed = at.routed.load(Ordering::Relaxed) == 0;
        changed |= masks(LTT_CHANNEL_CONTROL, now.filter);
        for (index, channel) in state.event_channels(slot) {
            let Some(described) = info.channel(slot, now.generation, index) else {
                // The slot already has another trace: the next round handles that.
                at.routed.store(0, Ordering::Relaxed);
                return;
            };
            if let Some(mode) = mode(index, &described, now.active != 0) {
                channel.set_mode(mode);
            }
            changed |= masks(index, described.filter);
        }
        changed |= self.read_rules(guard, slot, now.generation, info);
        if !changed {
            return;
        }
        let callsites = guard.callsites(self.modules);
        let (rules, _) = guard.rules_and_scratch(slot);
        for callsite in callsites {
            let accepted = accept(rules, callsite);
            callsite.set_channel(slot, self.channel(slot, callsite, &accepted));
        }
        let has_conditions = rules.has_conditions();
        let rules = guard.rules(slot);
        let counts_by = |index| rules.value_of(index).or(rules.key_of(index)).is_some();
        let conditional = u32::from(has_conditions || (0..CHANNELS).any(counts_by));
        if conditional | at.conditional.swap(conditional, Ordering::Relaxed) != 0 {
            state.conditions_stale.store(1, Ordering::Relaxed);
        }
        self.note_triggers(guard, slot);
        at.routed.store(1, Ordering::Relaxed);
    }

    /// Compiles the conditions of all traces and their triggers, and resolves their names for the
    /// call sites that they decide about.
    #[inline(never)]
    fn build_conditions(&self, guard: &mut StateGuard<'_>) {
        let state = self.state;
        let is_conditional =
            |slot: &usize| state.slots[*slot].conditional.load(Ordering::Relaxed) != 0;
        let has_triggers = |slot: &usize| state.slots[*slot].triggered.load(Ordering::Relaxed) != 0;
        let mut builder = Builder::new(&state.conditions);
        for slot in 0..SLOTS {
            let mut unusable = 0;
            if is_conditional(&slot) {
                let (rules, scratch) = guard.rules_and_scratch(slot);
                unusable += builder.compile(slot, rules, scratch);
            }
            if has_triggers(&slot) {
                let (rules, scratch) = guard.triggers_and_scratch(slot);
                unusable += builder.compile_triggers(slot, rules, scratch);
            }
            let at = &state.slots[slot].unusable;
            at.store(unusable, Ordering::Relaxed);
        }
        let mut list = TriggerList::new();
        // The first pass builds all decisions, the second one finds them again: call sites may
        // refer to them only when all of them are complete.
        for is_second in [false, true] {
            if is_second {
                builder.finish();
            }
            for slot in 0..SLOTS {
                let is_conditional = is_conditional(&slot);
                for callsite in guard.callsites(self.modules) {
                    let built = match is_conditional {
                        true => self.decide(guard, &mut builder, slot, callsite),
                        false => Built::Decision(0),
                    };
                    match built {
                        Built::Decision(decision) if is_second => {
                            callsite.set_decision(slot, decision);
                        }
                        Built::Decision(_) => {}
                        Built::Unusable => callsite.set_channel(slot, None),
                    }
                }
            }
            for callsite in guard.callsites(self.modules) {
                list.clear();
                for slot in (0..SLOTS).filter(has_triggers) {
                    let (rules, scratch) = guard.triggers_and_scratch(slot);
                    let (event, name) = (callsite.full_name(), callsite.name());
                    for (index, number) in
                        rules.matching_triggers(event.as_bytes(), name.as_bytes())
                    {
                        builder.resolve_trigger(
                            (slot, index, number),
                            callsite,
                            scratch,
                            &shared().apps,
                            &mut list,
                        );
                    }
                }
                let triggers = builder.keep_triggers(&list);
                if is_second {
                    callsite.set_triggers(triggers);
                }
            }
        }
    }

    /// Builds what decides about an event in a slot's trace, and what that counts it by; 0: nothing
    /// does.
    fn decide(
        &self,
        guard: &mut StateGuard<'_>,
        builder: &mut Builder<'_>,
        slot: usize,
        callsite: &Callsite,
    ) -> Built {
        let (rules, own, scratch) = guard.all_rules_and_scratch(slot);
        let accepted = accept(rules, callsite);
        let counts = callsite
            .wanted_channel(slot)
            .filter(|index| self.state.channels[slot][*index].counts())
            .map(|index| CountNames {
                channel: index,
                value: own.value_of(index),
                key: own.key_of(index),
            });
        let decides = (accepted.conditions().list(), counts);
        builder.resolve(slot, callsite, decides, scratch, &shared().apps)
    }

    /// The channel of a slot that an event goes to, given which rules accept its name; none if the
    /// trace does not want it.
    fn channel(&self, slot: usize, callsite: &Callsite, accepted: &Accepted) -> Option<usize> {
        let level = 1 << callsite.loglevel() as u32;
        let wants = |index: usize| {
            let mask = self.state.slots[slot].masks[index].load(Ordering::Relaxed);
            mask & level != 0 && accepted.by(index)
        };
        let is_one = |(index, channel): &(usize, &Channel)| {
            *index != LTT_CHANNEL_MAIN && channel.is_open() && wants(*index)
        };
        let further = || self.state.event_channels(slot).find(is_one);
        wants(LTT_CHANNEL_CONTROL).then(|| further().map_or(LTT_CHANNEL_MAIN, |(index, _)| index))
    }

    /// The position and layout of a channel's rings, if this writer supports them and they lie
    /// inside the slot.
    fn geometry(&self, slot: usize, index: usize, channel: &LttInfoChannel) -> Option<Geometry> {
        let state = self.state;
        let (buffers_len, control_len) = (
            state.buffers_slot_len.load(Ordering::Relaxed),
            state.control_slot_len.load(Ordering::Relaxed),
        );
        let (subbuf_size, subbuf_count) = (channel.subbuf_size.into(), channel.subbuf_count.into());
        let nr_rings = u64::from(channel.nr_rings);
        let stride = channel.control_stride.into();
        let control_end = end(
            channel.control_offset,
            nr_rings,
            stride,
            size_of::<LttRingControl>() as u64,
        )?;
        if rings_end(channel)? > buffers_len || control_end > control_len {
            return None;
        }
        let scope = match channel.scope {
            LTT_SCOPE_CPU => Scope::Cpu,
            LTT_SCOPE_THREAD => Scope::Thread,
            LTT_SCOPE_GLOBAL => Scope::Global,
            LTT_SCOPE_MM_CID => Scope::MmCid,
            _ => return None,
        };
        let protocol = match channel.protocol {
            LTT_PROTOCOL_RSEQ => Protocol::Rseq,
            LTT_PROTOCOL_SHARED => Protocol::Shared,
            LTT_PROTOCOL_COUNT => Protocol::Count,
            _ => return None,
        };
        let mode = mode(index, channel, true)?;
        let counts = protocol == Protocol::Count;
        if (mode == Mode::Count) != counts || counts && index == LTT_CHANNEL_MAIN {
            return None;
        }
        let place = |area: *mut u8, slot_len: u64, offset: u64| {
            area.wrapping_add(slot * slot_len as usize + offset as usize)
        };
        Some(Geometry {
            buffers: place(
                state.buffers.load(Ordering::Relaxed),
                buffers_len,
                channel.buffers_offset,
            ),
            control: place(
                state.control_area.load(Ordering::Relaxed),
                control_len,
                channel.control_offset,
            ),
            control_stride: stride,
            subbuf_size,
            subbuf_count,
            nr_rings: channel.nr_rings,
            scope,
            mode,
            cell_size: channel.cell_size,
            contexts: false,
            clock: Source::Processor,
            protocol,
            wakeup: self.wakeup(slot),
            // Event descriptions are small, and written once.
            prefault: if index == LTT_CHANNEL_CONTROL {
                Prefault::Never
            } else {
                self.kernel.prefault()
            },
            quiescence: self.kernel.removes_traces().then(|| QuiescenceSlot {
                readers: NonNull::from(&state.readers),
                slot: slot as u32,
            }),
        })
    }

    /// How writers of a slot notify readers, and wait for them.
    fn wakeup(&self, slot: usize) -> WakeupMethod {
        let reader_wakeup = self.kernel.reader_wakeup();
        if reader_wakeup.is_null() {
            self.buffer(slot)
                .map_or(WakeupMethod::None, WakeupMethod::Switch)
        } else {
            WakeupMethod::Futex(reader_wakeup)
        }
    }

    /// Describes the events of new modules, in a slot that is open.
    fn describe_new_modules(&self, guard: &mut StateGuard<'_>, slot: usize) {
        let at = &self.state.slots[slot];
        if self.is_open(slot) {
            self.describe_all(guard, slot, at.generation.load(Ordering::Relaxed));
            at.routed.store(0, Ordering::Relaxed);
        }
        if at.triggered.load(Ordering::Relaxed) != 0 {
            self.state.conditions_stale.store(1, Ordering::Relaxed);
        }
    }

    /// Describes all events that have no id yet in a slot's trace, which has this generation.
    fn describe_all(&self, guard: &mut StateGuard<'_>, slot: usize, generation: u64) {
        let mut undescribed = 0;
        for callsite in guard.callsites(self.modules) {
            if callsite.id(slot).load(Ordering::Relaxed) != 0 {
                continue;
            }
            if let Some(id) = guard
                .event_ids()
                .id(callsite.description(), slot, generation)
            {
                // Pairs with the event path's load: the description was written before.
                callsite.id(slot).store(id, Ordering::Release);
                continue;
            }
            if self.describe(guard, slot, callsite).is_none() {
                undescribed += 1;
            }
        }
        let at = &self.state.slots[slot];
        at.undescribed.store(undescribed, Ordering::Relaxed);
    }

    /// Writes the command line to a slot's trace, if it is known. Without room, the trace does
    /// without it.
    fn describe_process(&self, guard: &mut StateGuard<'_>, slot: usize) {
        let Some(cmdline) = cmdline::get() else {
            return;
        };
        let mut text = Text::new(guard.text());
        text.put(b"$ ");
        text.put_word(cmdline);
        if let Some(words) = text.finish() {
            let channel = self.state.control(slot);
            // SAFETY: as in `describe`.
            let _ = unsafe { writer::write_words(self.rseq, channel, &META, words) };
        }
    }

    /// Writes the objects that were loaded and unloaded to a slot's trace, from where it has them.
    fn describe_objects(&self, guard: &mut StateGuard<'_>, slot: usize) {
        let described = &self.state.slots[slot].objects;
        let (before, now) = (described.load(Ordering::Relaxed), objects::count());
        for number in before..now {
            let Some(line) = objects::line(number, before == 0) else {
                continue;
            };
            let mut text = Text::new(guard.text());
            text.put(line);
            if let Some(words) = text.finish() {
                let channel = self.state.control(slot);
                // SAFETY: as in `describe`.
                let _ = unsafe { writer::write_words(self.rseq, channel, &META, words) };
            }
        }
        described.store(now, Ordering::Relaxed);
    }

    /// Assigns an event an id in a slot's trace, and writes its metadata there.
    fn describe(&self, guard: &mut StateGuard<'_>, slot: usize, callsite: &Callsite) -> Option<()> {
        let channel = self.state.control(slot);
        let id = channel.new_id()?;
        let mut text = Text::new(guard.text());
        text.put_number(id);
        text.put(b" ");
        text.put(callsite.description().as_bytes());
        let words = text.finish()?;
        // SAFETY: `open` opened this slot's control channel; the words are a metadata record.
        unsafe { writer::write_words(self.rseq, channel, &META, words) }.ok()?;
        // Pairs with the event path's load, in a sequence that saw the main channel open.
        callsite.id(slot).store(id, Ordering::Release);
        Some(())
    }

    /// Closes a slot's channels, and waits until each rseq sequence in its rings has ended or
    /// restarted. Threads outside of sequences may remain; see
    /// [`is_quiescent`](Self::is_quiescent).
    fn quiesce(&self, guard: &mut StateGuard<'_>, slot: usize) {
        let state = self.state;
        state.all_channels(slot).for_each(Channel::close);
        let at = &state.slots[slot];
        at.active.store(0, Ordering::Relaxed);
        at.generation.store(0, Ordering::Relaxed);
        at.routed.store(0, Ordering::Relaxed);
        if at.conditional.swap(0, Ordering::Relaxed) != 0 {
            state.conditions_stale.store(1, Ordering::Relaxed);
        }
        at.unusable.store(0, Ordering::Relaxed);
        self.forget_triggers(slot);
        // The second barrier is for writers of rings that no sequence protects.
        let done = || membarrier::restart().and_then(|()| membarrier::barrier());
        if state.restarts.load(Ordering::Relaxed) == 0 || done().is_err() {
            state.dead.fetch_or(1 << slot, Ordering::Relaxed);
            return;
        }
        for callsite in guard.callsites(self.modules) {
            // Both must precede the next opening of the slot's channels.
            callsite.clear_routes();
            callsite.forget(slot);
        }
    }

    /// Makes readers switch all buffers that have open rings.
    pub(super) fn switch(&self) -> Result<(), Errno> {
        for slot in 0..SLOTS {
            if self.is_open(slot)
                && let Some(buffer) = self.buffer(slot)
            {
                self.kernel.switch(buffer)?;
            }
        }
        Ok(())
    }

    /// Sets the masks and routes of all call sites, which the event path reads.
    fn set_masks(&self, guard: &mut StateGuard<'_>) {
        // Relaxed: a change of `paused` is followed by an update.
        let is_paused = shared().paused.load(Ordering::Relaxed) != 0;
        let active = |slot: &usize| {
            let state = &self.state.slots[*slot];
            !is_paused
                && state.generation.load(Ordering::Relaxed) != 0
                && state.active.load(Ordering::Relaxed) != 0
        };
        for callsite in guard.callsites(self.modules) {
            let mask = (0..SLOTS)
                .filter(active)
                .filter(|&slot| callsite.is_wanted(slot))
                .filter(|&slot| callsite.id(slot).load(Ordering::Relaxed) != 0)
                .fold(0, |mask, slot| mask | 1 << slot);
            let mut flags = 0;
            for slot in (0..SLOTS).filter(|slot| mask & (1 << slot) != 0) {
                if self.state.contexts[slot][callsite.channel(slot)].wants_place() {
                    flags |= WANTS_IP;
                }
                if self.state.channels[slot][callsite.channel(slot)].counts() {
                    flags |= COUNTED;
                }
                let decision = callsite.decision(slot);
                if decision != 0 {
                    if self.state.conditions.has_conditions(decision) {
                        flags |= CONDITIONAL;
                    }
                    if self.state.conditions.wants_ip(decision) {
                        flags |= WANTS_IP;
                    }
                }
            }
            let triggers = callsite.triggers();
            if triggers != 0 && !is_paused {
                flags |= TRIGGERING;
                if self.state.conditions.wants_ip(triggers) {
                    flags |= WANTS_IP;
                }
            }
            callsite.set_mask(mask | flags);
            if mask.is_power_of_two()
                && flags & (CONDITIONAL | TRIGGERING) == 0
                && self.rseq.is_some()
            {
                let slot = mask.trailing_zeros() as usize;
                let channel = &self.state.channels[slot][callsite.channel(slot)];
                if channel.is_of_cpus() {
                    let id = callsite.id(slot).load(Ordering::Relaxed);
                    // SAFETY: the channel is part of the state, which is never unmapped.
                    unsafe { callsite.set_route(channel, id) };
                }
            }
            if mask.is_power_of_two() && flags & !(CONDITIONAL | COUNTED) == 0 && flags != 0 {
                self.set_flagged_route(callsite, mask.trailing_zeros() as usize, flags);
            }
        }
    }

    /// Sets what replaces the route of an event with these flags, which one slot wants, if the fast
    /// path can handle it.
    fn set_flagged_route(&self, callsite: &Callsite, slot: usize, flags: u32) {
        let index = callsite.channel(slot);
        let decision = callsite.decision(slot);
        let channel = &self.state.channels[slot][index];
        let target = CountTarget {
            channel: index as u8,
            is_plain: channel.counts_without_values(),
        };
        let counts = flags & COUNTED != 0 && self.rseq.is_some();
        let conditions = &self.state.conditions;
        if flags & CONDITIONAL == 0 {
            if counts && let Some([value, key]) = conditions.integer_places(decision, index) {
                callsite.set_flagged_route(FlaggedAction::Count {
                    slot: slot as u8,
                    target,
                    value,
                    key,
                });
            }
            return;
        }
        // In a process without the signal, events start updates, on the slow path. One that the
        // fast path rejects would not.
        let is_signalled = self.state.signal.load(Ordering::Relaxed) != 0;
        let follows = is_signalled || !self.kernel.removes_traces();
        if follows && conditions.has_quick_test(decision) {
            callsite.set_flagged_route(FlaggedAction::Test {
                slot: slot as u8,
                decision,
                target: counts.then_some(target),
            });
        }
    }
}

/// Evaluates rules for the event of a call site.
fn accept(rules: &Rules, callsite: &Callsite) -> Accepted {
    rules.accept(callsite.full_name().as_bytes(), callsite.name().as_bytes())
}

/// Composes the description of the contexts of the channel of index `index` in `words`.
#[inline(never)]
fn contexts_text<'a>(list: &List, index: usize, words: &'a mut [u64]) -> Option<&'a [u64]> {
    let mut text = Text::new(words);
    text.put(b"@");
    text.put_number(index as u16);
    let mut separator = b" ";
    for kind in list.kinds() {
        text.put(separator);
        kind.describe(&shared().apps, |part| text.put(part));
        separator = b";";
    }
    text.finish()
}

/// The mode of a channel, which says what happens when a ring is full; none if it is unknown.
fn mode(index: usize, channel: &LttInfoChannel, active: bool) -> Option<Mode> {
    match Mode::from_number(channel.mode)? {
        // Control records are written while other events wait for them, and they are not consumed.
        _ if index == LTT_CHANNEL_CONTROL => Some(Mode::Discard),
        // Waiting writers must continue when the trace is stopped.
        Mode::Block if !active => Some(Mode::Discard),
        mode => Some(mode),
    }
}

/// The end of the last of `count` parts of an area; none on overflow.
fn end(offset: u64, count: u64, stride: u64, last: u64) -> Option<u64> {
    let before = count.checked_sub(1)?.checked_mul(stride)?;
    before.checked_add(last)?.checked_add(offset)
}

/// The end of a channel's rings in a slot of the write area.
fn rings_end(channel: &LttInfoChannel) -> Option<u64> {
    let ring = u64::from(channel.subbuf_size).checked_mul(channel.subbuf_count.into())?;
    end(channel.buffers_offset, channel.nr_rings.into(), ring, ring)
}

/// The addresses of the areas, if their description is valid.
fn addresses(areas: &LttTracebuf) -> Result<(*mut u8, *mut u8, *mut u8), BadArea> {
    let check = |good: bool, field: AreaField, value: u64| {
        if good {
            Ok(())
        } else {
            Err(BadArea { field, value })
        }
    };
    let nr_slots = u64::from(areas.nr_slots);
    let is_number = (1..=LTT_MAX_TRACES as u64).contains(&nr_slots);
    check(is_number, AreaField::Slots, nr_slots)?;
    let slots = |stride: u64, len: u64| {
        let end = stride.checked_mul(nr_slots);
        stride != 0 && stride.is_multiple_of(8) && end.is_some_and(|end| end <= len)
    };
    let (stride, len) = (areas.buffers_stride, areas.buffers_len);
    check(slots(stride, len), AreaField::BuffersStride, stride)?;
    let (stride, len) = (areas.control_stride, areas.control_len);
    check(slots(stride, len), AreaField::ControlStride, stride)?;
    let is_long = areas.info_len >= size_of::<LttInfo>() as u64;
    check(is_long, AreaField::InfoLen, areas.info_len)?;
    let address = |area: u64, len: u64, field: AreaField| {
        // The whole area must lie in the address space.
        let is_there = area != 0 && area.is_multiple_of(8) && area.checked_add(len).is_some();
        check(is_there, field, area)?;
        let area = usize::try_from(area).map_err(|_| BadArea { field, value: area })?;
        Ok(std::ptr::with_exposed_provenance_mut(area))
    };
    Ok((
        address(areas.buffers, areas.buffers_len, AreaField::Buffers)?,
        address(areas.control, areas.control_len, AreaField::Control)?,
        address(areas.info, areas.info_len, AreaField::Info)?,
    ))
}

/// The info area of an attached process.
pub(super) fn area(state: &State) -> Option<InfoArea> {
    let area = NonNull::new(state.info.load(Ordering::Relaxed))?;
    let len = state.info_len.load(Ordering::Relaxed);
    // SAFETY: only `attach` stores an address and a length there: those of the kernel's info area,
    // which stays mapped.
    Some(unsafe { InfoArea::new(area, len) })
}
