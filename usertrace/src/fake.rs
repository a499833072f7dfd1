//! A fake kernel for tests, with areas in memory that the test can read.
//!
//! It implements the calls and the areas of the header `linux/ltt.h` for this process and its
//! forked children. Tests raise the signals themselves.

pub mod process;

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use usertrace_ring::schema::{
    Contexts, Counting, Description, Event, EventTable, InChannel, ModuleChange,
};
use usertrace_ring::{
    CountCell, CountTable, Format, Frozen, Geometry, Item, MetaLengths, PayloadLengths, Positions,
    RingReader, WaitPolicy,
};
use usertrace_sys::limits::{CHANNELS, RULES_LEN, SLOTS};
use usertrace_sys::uapi::*;
use usertrace_sys::{Errno, Update};
use usertrace_sys::{Mode, Protocol, Scope};

use crate::runtime::Kernel;

/// The distance between the parts of the info area.
const INFO_PAGE: usize = 4096;
const INFO_LEN: usize = (1 + 2 * SLOTS) * INFO_PAGE;
/// The offset of the slots. They do not follow the head directly, so that code cannot rely on that.
const SLOT_OFFSET: usize = size_of::<LttInfo>() + 64;
const SLOT_STRIDE: usize = size_of::<LttInfoSlot>() + 8;
/// The offset of the channels in the part of a trace, likewise.
const CHANNEL_OFFSET: usize = size_of::<LttInfoTrace>() + 8;
const CHANNEL_STRIDE: usize = size_of::<LttInfoChannel>() + 16;

const STRIDE: usize = size_of::<LttRingControl>();
/// Processes that can have areas.
const PROCESSES: usize = 4;

/// Sizes of the rings: first of the control channel, then of all others.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The size of each sub-buffer.
    pub subbuf_size: [u32; 2],
    /// The number of sub-buffers of each ring.
    pub subbuf_count: [u32; 2],
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            subbuf_size: [4096, 65536],
            subbuf_count: [4, 16],
        }
    }
}

/// The state that all processes share, like the kernel's table.
#[derive(Debug, Default)]
struct Table {
    lock: AtomicU32,
    generation: AtomicU64,
    traces: [Trace; SLOTS],
    processes: [Process; PROCESSES],
    fail: AtomicU32,
    /// `LTT_CLOCK_*` of all traces.
    clock: AtomicU32,
    /// Number of calls of `ltt_update`.
    updates: AtomicU64,
    /// Number of buffers that were written to after they were given up.
    late: AtomicU64,
    /// Number of calls that fired a trigger of a trace that was gone.
    late_fires: AtomicU64,
}

#[derive(Debug, Default)]
struct Trace {
    generation: AtomicU64,
    state: AtomicU32,
    /// The trace's filter, then those of the channels after main.
    filters: [AtomicU32; CHANNELS],
    modes: [AtomicU32; CHANNELS],
    /// A bit for each channel that was ever in overwrite mode.
    overwrote: AtomicU32,
    /// How often each trigger was fired: number `n` at `[n / 32][n % 32]`.
    fired: [[AtomicU32; 32]; 8],
    /// The bytes in the main channel of the process that fired a trigger last, at that time.
    written: AtomicU64,
    /// The trigger that stops the trace, and the one that starts it; 0: none.
    stops: AtomicU32,
    starts: AtomicU32,
}

impl Trace {
    /// The channels may still change.
    const NEW: u32 = 0;
    const STARTED: u32 = 1;
    const STOPPED: u32 = 2;
    const ALLOCATED: u32 = 3;

    fn is_laid_out(&self) -> bool {
        self.state.load(Ordering::Relaxed) != Self::NEW
    }

    fn fired(&self, trigger: u8) -> &AtomicU32 {
        let trigger = usize::from(trigger);
        &self.fired[trigger / 32][trigger % 32]
    }

    fn is_active(&self) -> bool {
        self.state.load(Ordering::Relaxed) == Self::STARTED
    }
}

#[derive(Debug, Default)]
struct Process {
    pid: AtomicU32,
    signo: AtomicU32,
    /// Generations of the traces whose buffers the process was given.
    given: [AtomicU64; SLOTS],
    /// Slots whose buffer the process gave up and did not get again: it must not write there.
    given_up: AtomicU32,
    switches: [AtomicU32; SLOTS],
}

/// The fake kernel.
#[derive(Debug)]
pub struct Fake {
    sizes: Sizes,
    /// The scopes of the channels, from control on; none: no channel has that index.
    scopes: Vec<Option<Scope>>,
    /// The sizes of their cells; 0: they have rings.
    cell_sizes: Vec<u32>,
    nr_rings: Vec<u32>,
    fd: libc::c_int,
    /// All areas, mapped for readers.
    memory: NonNull<u8>,
    table: NonNull<Table>,
}

// SAFETY: both pointers are to shared memory, which is used with atomics or under the table's lock.
unsafe impl Send for Fake {}
// SAFETY: as for `Send`.
unsafe impl Sync for Fake {}

/// An event that was read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The description of its id.
    pub event: Event,
    /// Its full time.
    pub time: u64,
    /// Its ring.
    pub ring: u32,
    /// Its writer, according to the channel's scope.
    pub cpu: u32,
    /// Its contexts, if the channel has any.
    pub contexts: Vec<u8>,
    /// Its payload.
    pub payload: Vec<u8>,
}

fn map(len: usize, fd: libc::c_int, offset: usize, protection: libc::c_int) -> NonNull<u8> {
    let anonymous = if fd < 0 { libc::MAP_ANONYMOUS } else { 0 };
    // SAFETY: a new mapping.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            protection,
            libc::MAP_SHARED | libc::MAP_NORESERVE | anonymous,
            fd,
            offset as libc::off_t,
        )
    };
    assert_ne!(address, libc::MAP_FAILED);
    NonNull::new(address.cast()).expect("not at 0")
}

impl Fake {
    /// Creates a kernel without traces, which is leaked.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    pub fn new(sizes: Sizes) -> &'static Self {
        Self::with_scope(sizes, Scope::Cpu)
    }

    /// As [`new`](Self::new), with another scope of the main channel.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    pub fn with_scope(sizes: Sizes, scope: Scope) -> &'static Self {
        Self::with_channels(sizes, &[Some(scope)])
    }

    /// As [`new`](Self::new), with these channels in each trace: main, and those after it.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    pub fn with_channels(sizes: Sizes, scopes: &[Option<Scope>]) -> &'static Self {
        Self::with_tables(sizes, scopes, &[])
    }

    /// As [`with_channels`](Self::with_channels). Behind these channels are some that count, with
    /// cells of these sizes.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    pub fn with_tables(
        sizes: Sizes,
        scopes: &[Option<Scope>],
        cell_sizes: &[u32],
    ) -> &'static Self {
        // SAFETY: the only pointer is to a constant string.
        let (nr_cpus, fd) = unsafe {
            (
                libc::sysconf(libc::_SC_NPROCESSORS_CONF) as u32,
                libc::memfd_create(c"fake".as_ptr(), 0),
            )
        };
        let table = map(
            size_of::<Table>(),
            -1,
            0,
            libc::PROT_READ | libc::PROT_WRITE,
        )
        .cast::<Table>();
        // SAFETY: the table's mapping is new and has its size.
        unsafe {
            table.write(Table {
                clock: AtomicU32::new(crate::clock::NUMBER),
                ..Table::default()
            });
        }
        let nr_rings = |scope: &Option<Scope>| match scope {
            None => 0,
            Some(Scope::Cpu | Scope::MmCid) => nr_cpus,
            Some(Scope::Thread) => 64,
            Some(Scope::Global) => 1,
        };
        let tables = vec![Some(Scope::Cpu); cell_sizes.len()];
        let scopes = [&[Some(Scope::Cpu)], scopes, &tables].concat();
        let rings = vec![0; scopes.len() - cell_sizes.len()];
        let mut fake = Self {
            sizes,
            nr_rings: scopes.iter().map(nr_rings).collect(),
            scopes,
            cell_sizes: [&rings[..], cell_sizes].concat(),
            fd,
            memory: NonNull::dangling(),
            table,
        };
        let len = fake.process_offset(PROCESSES);
        // SAFETY: `fd` is this object's own file.
        assert_eq!(unsafe { libc::ftruncate(fd, len as libc::off_t) }, 0);
        fake.memory = map(len, fd, 0, libc::PROT_READ | libc::PROT_WRITE);
        Box::leak(Box::new(fake))
    }

    fn table(&self) -> &Table {
        // SAFETY: `with_channels` initialised the table, which is never unmapped; its fields are
        // atomic.
        unsafe { self.table.as_ref() }
    }

    /// The size of a channel's sub-buffers, and their number in a ring.
    fn subbufs(&self, channel: usize) -> (u32, u32) {
        let sizes = channel.min(LTT_CHANNEL_MAIN);
        (
            self.sizes.subbuf_size[sizes],
            self.sizes.subbuf_count[sizes],
        )
    }

    fn ring_len(&self, channel: usize) -> usize {
        let (size, count) = self.subbufs(channel);
        size as usize * count as usize
    }

    fn rings_len(&self, channel: usize) -> usize {
        self.ring_len(channel) * self.nr_rings[channel] as usize
    }

    fn all_rings(&self) -> usize {
        self.nr_rings.iter().map(|&rings| rings as usize).sum()
    }

    fn buffers_slot_len(&self) -> usize {
        self.all_rings_len().next_multiple_of(4096)
    }

    fn all_rings_len(&self) -> usize {
        let channels = 0..self.scopes.len();
        channels.map(|channel| self.rings_len(channel)).sum()
    }

    fn control_slot_len(&self) -> usize {
        (STRIDE * self.all_rings()).next_multiple_of(4096)
    }

    fn process_offset(&self, process: usize) -> usize {
        INFO_LEN + process * SLOTS * (self.buffers_slot_len() + self.control_slot_len())
    }

    /// The offsets of a ring and its control block in the memory.
    fn ring_offset(
        &self,
        process: usize,
        slot: usize,
        channel: usize,
        cpu: usize,
    ) -> (usize, usize) {
        let buffers = self.process_offset(process);
        let control = buffers + SLOTS * self.buffers_slot_len();
        let before = (0..channel).map(|before| self.rings_len(before));
        let blocks_before = self.nr_rings[..channel].iter().map(|&rings| rings as usize);
        let (first, first_block) = (before.sum::<usize>(), blocks_before.sum::<usize>());
        (
            buffers + slot * self.buffers_slot_len() + first + cpu * self.ring_len(channel),
            control + slot * self.control_slot_len() + (first_block + cpu) * STRIDE,
        )
    }

    fn locked<T>(&self, body: impl FnOnce(&Table) -> T) -> T {
        let table = self.table();
        while table
            .lock
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::hint::spin_loop();
        }
        let value = body(table);
        table.lock.store(0, Ordering::Release);
        value
    }

    fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: all callers pass the offset of an atomic inside the memory.
        unsafe { &*self.memory.as_ptr().add(offset).cast::<T>() }
    }

    /// Updates the info area under the seqlock, as the kernel does.
    fn publish(&self, table: &Table) {
        self.publish_with(table, || {});
    }

    /// As [`publish`](Self::publish), together with the changes that `change` makes.
    fn publish_with(&self, table: &Table, change: impl FnOnce()) {
        let seq: &AtomicU32 = self.at(offset_of!(LttInfo, seq));
        let before = seq.load(Ordering::Relaxed);
        seq.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        for (slot, trace) in table.traces.iter().enumerate() {
            self.write_trace(table, slot, trace);
        }
        self.write_head();
        let generation = table.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.store64(offset_of!(LttInfo, generation), generation);
        seq.store(before + 2, Ordering::Release);
    }

    fn store32(&self, offset: usize, value: u32) {
        self.at::<AtomicU32>(offset).store(value, Ordering::Relaxed);
    }

    fn store64(&self, offset: usize, value: u64) {
        self.at::<AtomicU64>(offset).store(value, Ordering::Relaxed);
    }

    /// Writes a trace's parts of the info area, with its channels.
    fn write_trace(&self, table: &Table, slot: usize, trace: &Trace) {
        let generation = trace.generation.load(Ordering::Relaxed);
        let nr_channels = if trace.is_laid_out() {
            self.scopes.len() as u32
        } else {
            0
        };
        let mask = trace.filters[0].load(Ordering::Relaxed);
        let head = SLOT_OFFSET + slot * SLOT_STRIDE;
        self.store64(head + offset_of!(LttInfoSlot, generation), generation);
        let active = trace.is_active();
        self.store32(head + offset_of!(LttInfoSlot, active), active.into());
        let all = self.at::<AtomicU32>(offset_of!(LttInfo, active));
        let others = all.load(Ordering::Relaxed) & !(1 << slot);
        all.store(others | u32::from(active) << slot, Ordering::Relaxed);
        self.store32(head + offset_of!(LttInfoSlot, filter), mask);
        self.store32(head + offset_of!(LttInfoSlot, nr_channels), nr_channels);
        let filter = (1 + SLOTS + slot) * INFO_PAGE;
        self.store64(filter + offset_of!(LttInfoFilter, generation), generation);
        let page = (1 + slot) * INFO_PAGE;
        self.store64(page + offset_of!(LttInfoTrace, generation), generation);
        let clock = table.clock.load(Ordering::Relaxed);
        self.store32(page + offset_of!(LttInfoTrace, clock), clock);
        for channel in 0..self.scopes.len() {
            let at = page + CHANNEL_OFFSET + channel * CHANNEL_STRIDE;
            self.write_channel(trace, channel, at);
        }
    }

    /// Writes the entry of a channel at an offset of the info area.
    fn write_channel(&self, trace: &Trace, channel: usize, at: usize) {
        let (buffers, control) = self.ring_offset(0, 0, channel, 0);
        let (buffers0, control0) = self.ring_offset(0, 0, 0, 0);
        let (subbuf_size, subbuf_count) = self.subbufs(channel);
        let (scope, protocol) = self.kind(channel);
        let mode = match protocol {
            Protocol::Count => Mode::Count as u32,
            _ => trace.modes[channel].load(Ordering::Relaxed),
        };
        let filter = trace.filters[channel].load(Ordering::Relaxed);
        for (offset, value) in [
            (
                offset_of!(LttInfoChannel, buffers_offset),
                buffers - buffers0,
            ),
            (
                offset_of!(LttInfoChannel, control_offset),
                control - control0,
            ),
        ] {
            self.store64(at + offset, value as u64);
        }
        for (offset, value) in [
            (offset_of!(LttInfoChannel, subbuf_size), subbuf_size),
            (offset_of!(LttInfoChannel, subbuf_count), subbuf_count),
            (offset_of!(LttInfoChannel, nr_rings), self.nr_rings[channel]),
            (offset_of!(LttInfoChannel, control_stride), STRIDE as u32),
            (offset_of!(LttInfoChannel, scope), scope as u32),
            (offset_of!(LttInfoChannel, protocol), protocol as u32),
            (offset_of!(LttInfoChannel, mode), mode),
            (offset_of!(LttInfoChannel, filter), filter),
            (
                offset_of!(LttInfoChannel, cell_size),
                self.cell_sizes[channel],
            ),
        ] {
            self.store32(at + offset, value);
        }
    }

    /// Writes the head of the info area, except for its seqlock and generation.
    fn write_head(&self) {
        for (offset, value) in [
            (offset_of!(LttInfo, size), size_of::<LttInfo>()),
            (offset_of!(LttInfo, nr_slots), SLOTS),
            (offset_of!(LttInfo, nr_channels), CHANNELS),
            (offset_of!(LttInfo, slot_offset), SLOT_OFFSET),
            (offset_of!(LttInfo, slot_stride), SLOT_STRIDE),
            (offset_of!(LttInfo, trace_offset), INFO_PAGE),
            (offset_of!(LttInfo, trace_stride), INFO_PAGE),
            (offset_of!(LttInfo, filter_offset), (1 + SLOTS) * INFO_PAGE),
            (offset_of!(LttInfo, filter_stride), INFO_PAGE),
            (offset_of!(LttInfo, channel_offset), CHANNEL_OFFSET),
            (offset_of!(LttInfo, channel_stride), CHANNEL_STRIDE),
            (offset_of!(LttInfo, rules_size), RULES_LEN),
        ] {
            self.store32(offset, value as u32);
        }
        self.store32(offset_of!(LttInfo, version), LTT_ABI_VERSION);
        self.store32(offset_of!(LttInfo, magic), LTT_INFO_MAGIC);
        self.store32(offset_of!(LttInfo, nr_cpus), self.nr_rings[0]);
    }

    /// The scope and the protocol of a channel.
    fn kind(&self, channel: usize) -> (Scope, Protocol) {
        if self.cell_sizes[channel] != 0 {
            return (Scope::Cpu, Protocol::Count);
        }
        match self.scopes[channel].unwrap_or(Scope::Cpu) {
            scope @ (Scope::Cpu | Scope::MmCid) => (scope, Protocol::Rseq),
            scope @ (Scope::Thread | Scope::Global) => (scope, Protocol::Shared),
        }
    }

    /// Creates a trace in a slot for which no process has an earlier buffer; none if there is no
    /// such slot.
    pub fn create(&self) -> Option<usize> {
        self.locked(|table| {
            let slot = (0..SLOTS).find(|&slot| {
                table.traces[slot].generation.load(Ordering::Relaxed) == 0
                    && table
                        .processes
                        .iter()
                        .all(|process| process.given[slot].load(Ordering::Relaxed) == 0)
            })?;
            self.put(table, slot);
            Some(slot)
        })
    }

    /// Destroys a trace, and creates another one in its slot at once. Processes that have the old
    /// buffer get the new one after they have given up the old one.
    pub fn replace(&self, slot: usize) {
        self.locked(|table| self.put(table, slot));
    }

    fn put(&self, table: &Table, slot: usize) {
        for (n, process) in table.processes.iter().enumerate() {
            if process.given[slot].load(Ordering::Relaxed) == 0 {
                self.wipe(n, slot);
            }
            process.switches[slot].store(0, Ordering::Relaxed);
        }
        let generation = table.generation.load(Ordering::Relaxed) + 1000;
        let trace = &table.traces[slot];
        trace.generation.store(generation, Ordering::Relaxed);
        trace.state.store(Trace::NEW, Ordering::Relaxed);
        for (filter, mode) in trace.filters.iter().zip(&trace.modes) {
            filter.store(u32::MAX, Ordering::Relaxed);
            mode.store(Mode::Discard as u32, Ordering::Relaxed);
        }
        trace.overwrote.store(0, Ordering::Relaxed);
        for action in [&trace.stops, &trace.starts] {
            action.store(0, Ordering::Relaxed);
        }
        self.publish_with(table, || self.write_rules(slot, b"\0\0\x01*"));
    }

    /// Writes the rules of a slot, as bytes that need not be valid.
    fn write_rules(&self, slot: usize, rules: &[u8]) {
        let page = (1 + SLOTS + slot) * INFO_PAGE;
        let len: &AtomicU32 = self.at(page + offset_of!(LttInfoFilter, len));
        len.store(rules.len() as u32, Ordering::Relaxed);
        let at = page + size_of::<LttInfoFilter>();
        for (n, &byte) in rules.iter().take(RULES_LEN).enumerate() {
            self.at::<AtomicU8>(at + n).store(byte, Ordering::Relaxed);
        }
    }

    /// Sets the rules of a trace: channel, flags, and pattern.
    pub fn set_rules(&self, slot: usize, rules: &[(u8, u8, &str)]) {
        let rule = |&(channel, flags, pattern): &(u8, u8, &str)| {
            [&[channel, flags, pattern.len() as u8], pattern.as_bytes()].concat()
        };
        self.set_rule_bytes(slot, &rules.iter().flat_map(rule).collect::<Vec<_>>());
    }

    /// Sets the rules of a trace to bytes that need not be valid rules.
    pub fn set_rule_bytes(&self, slot: usize, rules: &[u8]) {
        self.locked(|table| self.publish_with(table, || self.write_rules(slot, rules)));
    }

    /// How often processes fired a trigger of the trace in a slot since the last call.
    pub fn fired(&self, slot: usize, trigger: u8) -> u32 {
        let trace = &self.table().traces[slot];
        trace.fired(trigger).swap(0, Ordering::Relaxed)
    }

    /// The bytes that the main channel of the process that fired a trigger last had at that time.
    pub fn written_when_fired(&self, slot: usize) -> u64 {
        self.table().traces[slot].written.load(Ordering::Relaxed)
    }

    /// The bytes that a process has written to the main channel.
    pub fn written(&self, process: usize, slot: usize) -> u64 {
        let rings = 0..self.nr_rings[LTT_CHANNEL_MAIN] as usize;
        let head = |ring| {
            let (_, control) = self.ring_offset(process, slot, LTT_CHANNEL_MAIN, ring);
            let head: &AtomicU64 = self.at(control + offset_of!(LttRingControl, head));
            head.load(Ordering::Acquire)
        };
        rings.map(head).sum()
    }

    /// Number of calls that fired a trigger of a trace that was gone.
    pub fn late_fires(&self) -> u64 {
        self.table().late_fires.load(Ordering::Relaxed)
    }

    /// Lets a trigger stop or start the trace in a slot.
    pub fn act(&self, slot: usize, trigger: u8, starts: bool) {
        let trace = &self.table().traces[slot];
        let action = if starts { &trace.starts } else { &trace.stops };
        action.store(trigger.into(), Ordering::Relaxed);
    }

    /// Changes the filter mask of a channel, or, if that is 0, of the trace.
    pub fn set_filter(&self, slot: usize, channel: usize, mask: u32) {
        self.locked(|table| {
            table.traces[slot].filters[channel].store(mask, Ordering::Relaxed);
            self.publish(table);
        });
    }

    /// Changes the mode of a channel.
    pub fn set_mode(&self, slot: usize, channel: usize, mode: Mode) {
        self.locked(|table| {
            let trace = &table.traces[slot];
            trace.modes[channel].store(mode as u32, Ordering::Relaxed);
            if mode == Mode::Overwrite {
                trace.overwrote.fetch_or(1 << channel, Ordering::Relaxed);
            }
            self.publish(table);
        });
    }

    /// Sets the number of readers that have a process's file of a channel open.
    pub fn set_readers(&self, process: usize, slot: usize, channel: usize, readers: u32) {
        for ring in 0..self.nr_rings[channel] as usize {
            let (_, control) = self.ring_offset(process, slot, channel, ring);
            let at = control + offset_of!(LttRingControl, readers);
            self.at::<AtomicU32>(at).store(readers, Ordering::Relaxed);
        }
    }

    /// Makes a process's part of a slot read as zeros.
    fn wipe(&self, process: usize, slot: usize) {
        let (buffers, control) = self.ring_offset(process, slot, 0, 0);
        let holes = [
            (buffers, self.buffers_slot_len()),
            (control, self.control_slot_len()),
        ];
        for (offset, len) in holes {
            // SAFETY: `fd` is this object's own file; the range reads as zeros afterwards.
            let ret = unsafe {
                libc::fallocate(
                    self.fd,
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    offset as libc::off_t,
                    len as libc::off_t,
                )
            };
            assert_eq!(ret, 0);
        }
    }

    fn set(&self, slot: usize, state: u32) {
        self.locked(|table| {
            table.traces[slot].state.store(state, Ordering::Relaxed);
            self.publish(table);
        });
    }

    /// Publishes a trace's geometry.
    pub fn allocate(&self, slot: usize) {
        self.set(slot, Trace::ALLOCATED);
    }

    /// Starts a trace, and publishes its geometry.
    pub fn start(&self, slot: usize) {
        self.set(slot, Trace::STARTED);
    }

    /// Stops a trace.
    pub fn stop(&self, slot: usize) {
        self.set(slot, Trace::STOPPED);
    }

    /// Destroys a trace.
    pub fn destroy(&self, slot: usize) {
        self.locked(|table| {
            table.traces[slot].generation.store(0, Ordering::Relaxed);
            table.traces[slot]
                .state
                .store(Trace::NEW, Ordering::Relaxed);
            self.publish(table);
        });
    }

    /// Changes a word of the info area, until the next change of a trace. Returns the old value.
    pub fn set_info_word(&self, offset: usize, value: u32) -> u32 {
        assert!(offset + 4 <= INFO_LEN && offset.is_multiple_of(4));
        self.at::<AtomicU32>(offset).swap(value, Ordering::Relaxed)
    }

    /// Sets the clock of all traces, `LTT_CLOCK_*`.
    pub fn set_clock(&self, clock: u32) {
        self.locked(|table| {
            table.clock.store(clock, Ordering::Relaxed);
            self.publish(table);
        });
    }

    /// Makes `alloc_tracebuf` fail.
    pub fn fail(&self, errno: Errno) {
        self.table()
            .fail
            .store(errno.into_raw() as u32, Ordering::Relaxed);
    }

    /// Number of processes that have areas.
    pub fn processes(&self) -> usize {
        self.table()
            .processes
            .iter()
            .filter(|process| process.pid.load(Ordering::Relaxed) != 0)
            .count()
    }

    /// Number of calls of `ltt_update`.
    pub fn updates(&self) -> u64 {
        self.table().updates.load(Ordering::Relaxed)
    }

    /// Generation of the trace in a slot; 0: none.
    pub fn generation(&self, slot: usize) -> u64 {
        self.table().traces[slot].generation.load(Ordering::Relaxed)
    }

    /// Number of buffers that were written to after they were given up, and before they were given
    /// again.
    pub fn late_writes(&self) -> u64 {
        self.table().late.load(Ordering::Relaxed)
    }

    /// The update signal that a process asked for.
    pub fn signo(&self, process: usize) -> u32 {
        self.table().processes[process]
            .signo
            .load(Ordering::Relaxed)
    }

    /// Number of times that a process switched a slot.
    pub fn switches(&self, process: usize, slot: usize) -> u32 {
        self.table().processes[process].switches[slot].load(Ordering::Relaxed)
    }

    /// Marks everything of the main channel as read.
    pub fn consume(&self, process: usize, slot: usize) {
        self.consume_of(process, slot, LTT_CHANNEL_MAIN);
    }

    /// Marks everything of a channel as read.
    pub fn consume_of(&self, process: usize, slot: usize, channel: usize) {
        for cpu in 0..self.nr_rings[channel] as usize {
            let (_, control) = self.ring_offset(process, slot, channel, cpu);
            let head: &AtomicU64 = self.at(control + offset_of!(LttRingControl, head));
            let consumed: &AtomicU64 = self.at(control + offset_of!(LttRingControl, consumed));
            consumed.store(head.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// True if a process has not written to a slot since its trace was created.
    pub fn is_untouched(&self, process: usize, slot: usize) -> bool {
        let (buffers, control) = self.ring_offset(process, slot, 0, 0);
        let is_zero = |at: usize| self.at::<AtomicU64>(at).load(Ordering::Relaxed) == 0;
        let len = self.all_rings_len();
        (0..self.all_rings() * STRIDE).step_by(8).all(|at| is_zero(control + at))
            // Checks enough words of the rings to find any record that is no shorter.
            && (0..len).step_by(512).all(|at| is_zero(buffers + at))
    }

    /// Makes a process's control channel full.
    pub fn fill_control(&self, process: usize, slot: usize) {
        for cpu in 0..self.nr_rings[0] as usize {
            let (_, control) = self.ring_offset(process, slot, 0, cpu);
            let head: &AtomicU64 = self.at(control + offset_of!(LttRingControl, head));
            head.store(self.ring_len(0) as u64, Ordering::Release);
        }
    }

    /// Records lost by a process in a slot's main channel.
    pub fn lost(&self, process: usize, slot: usize) -> u64 {
        self.lost_of(process, slot, LTT_CHANNEL_MAIN)
    }

    /// Records lost by a process in a channel.
    pub fn lost_of(&self, process: usize, slot: usize, channel: usize) -> u64 {
        (0..self.nr_rings[channel] as usize)
            .map(|cpu| {
                let (_, control) = self.ring_offset(process, slot, channel, cpu);
                let lost: &AtomicU64 = self.at(control + offset_of!(LttRingControl, lost));
                lost.load(Ordering::Relaxed)
            })
            .sum()
    }

    /// The events that are described in a process's part of a trace.
    pub fn metadata(&self, process: usize, slot: usize) -> EventTable {
        let events = self.descriptions(process, slot).into_iter();
        let events = events.filter_map(|description| match description {
            Description::Event(event) => Some(event),
            Description::Contexts(_)
            | Description::Counting(_)
            | Description::Cmdline(_)
            | Description::Module(_) => None,
        });
        let mut table = EventTable::default();
        for event in events {
            table.add(event).expect("one description of each id");
        }
        table
    }

    /// The modules that are described in a process's part of a trace: loaded and unloaded ones.
    pub fn modules(&self, process: usize, slot: usize) -> Vec<ModuleChange> {
        let described = self.descriptions(process, slot).into_iter();
        let modules = described.filter_map(|description| match description {
            Description::Module(change) => Some(change),
            _ => None,
        });
        modules.collect()
    }

    /// The contexts that are described for a channel in a process's part of a trace.
    pub fn contexts(&self, process: usize, slot: usize, channel: usize) -> Option<Contexts> {
        let described = self.descriptions(process, slot).into_iter();
        let mut contexts = described.filter_map(|description| match description {
            Description::Contexts(contexts) if contexts.channel as usize == channel => {
                Some(contexts)
            }
            _ => None,
        });
        let first = contexts.next()?;
        assert!(contexts.all(|more| more == first), "they contradict");
        Some(first)
    }

    /// What a channel counts by, as a process's part of a trace describes it.
    pub fn counting(&self, process: usize, slot: usize, channel: usize) -> Option<Counting> {
        let described = self.descriptions(process, slot).into_iter();
        let mut counting = described.filter_map(|description| match description {
            Description::Counting(counting) if counting.channel as usize == channel => {
                Some(counting)
            }
            _ => None,
        });
        let first = counting.next()?;
        assert!(counting.next().is_none(), "described twice");
        Some(first)
    }

    /// Reads a process's counters of a channel: the CPU and the cell.
    ///
    /// # Panics
    /// If a cell is not whole.
    pub fn cells(&self, process: usize, slot: usize, channel: usize) -> Vec<(u32, CountCell)> {
        let (size, count) = self.subbufs(channel);
        let geometry = Geometry::new(size, count).expect("a good geometry");
        let table = CountTable::new(geometry, self.cell_sizes[channel]).expect("a table");
        let mut cells = Vec::new();
        for cpu in 0..self.nr_rings[channel] as usize {
            let (buffers, _) = self.ring_offset(process, slot, channel, cpu);
            let mut bytes = vec![0; self.ring_len(channel)];
            for (at, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: the offset is inside the memory.
                *byte = unsafe { self.memory.as_ptr().add(buffers + at).read_volatile() };
            }
            let mut memory = Frozen::new(
                &bytes,
                Positions {
                    head: 0,
                    claimed: 0,
                },
            );
            let gaps = table.read(&mut memory, |cell| {
                cells.push((cpu as u32, cell));
                Ok::<_, ()>(())
            });
            assert_eq!(gaps.map(|gaps| gaps.cells()), Ok(0), "whole cells");
        }
        cells
    }

    fn descriptions(&self, process: usize, slot: usize) -> Vec<Description> {
        let mut all = Vec::new();
        self.records(process, slot, 0, &MetaLengths, |_, _, _, _, payload| {
            all.push(Description::parse(payload).expect("a good description"));
        });
        all
    }

    /// Reads a process's events of the main channel, sorted by time.
    ///
    /// # Panics
    /// If the rings contain anything but events with descriptions.
    pub fn events(&self, process: usize, slot: usize) -> Vec<Seen> {
        self.events_of(process, slot, LTT_CHANNEL_MAIN)
    }

    /// Reads a process's events of a channel, sorted by time.
    ///
    /// # Panics
    /// As for [`events`](Self::events).
    pub fn events_of(&self, process: usize, slot: usize, channel: usize) -> Vec<Seen> {
        let metadata = self.metadata(process, slot);
        let contexts = self.contexts(process, slot, channel);
        let lengths = InChannel {
            events: &metadata,
            contexts: contexts.as_ref(),
        };
        let mut seen = Vec::new();
        self.records(
            process,
            slot,
            channel,
            &lengths,
            |ring, cpu, id, time, payload| {
                let event = metadata.get(id).expect("described").clone();
                let (before, payload) = match &contexts {
                    Some(contexts) => contexts.split(payload).expect("contexts"),
                    None => (&[][..], payload),
                };
                seen.push(Seen {
                    event,
                    time,
                    ring,
                    cpu,
                    contexts: before.to_vec(),
                    payload: payload.to_vec(),
                });
            },
        );
        // A thread may change its CPU, and so its ring, between any two events.
        seen.sort_by_key(|seen| seen.time);
        seen
    }

    fn records(
        &self,
        process: usize,
        slot: usize,
        channel: usize,
        lengths: &impl PayloadLengths,
        mut each: impl FnMut(u32, u32, u16, u64, &[u8]),
    ) {
        let (size, count) = self.subbufs(channel);
        let geometry = Geometry::new(size, count).expect("a good geometry");
        let overwrote = self.table().traces[slot].overwrote.load(Ordering::Relaxed);
        let overwrote = overwrote & (1 << channel) != 0;
        let given = self.table().processes[process].given[slot].load(Ordering::Relaxed);
        if given != self.generation(slot) {
            // The process's buffer belongs to another trace.
            return;
        }
        let (scope, protocol) = self.kind(channel);
        for ring in 0..self.nr_rings[channel] as usize {
            let (buffers, control) = self.ring_offset(process, slot, channel, ring);
            let head: &AtomicU64 = self.at(control + offset_of!(LttRingControl, head));
            let consumed: &AtomicU64 = self.at(control + offset_of!(LttRingControl, consumed));
            let claimed: &AtomicU64 = self.at(control + offset_of!(LttRingControl, claimed));
            let mut bytes = vec![0; self.ring_len(channel)];
            let head = head.load(Ordering::Acquire);
            for (at, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: the offset is inside the memory, and writers only write above `head`.
                *byte = unsafe { self.memory.as_ptr().add(buffers + at).read_volatile() };
            }
            let format = Format { geometry, protocol };
            let claimed = claimed.load(Ordering::Relaxed);
            let mut memory = Frozen::new(&bytes, Positions { head, claimed });
            let mut reader = RingReader::live(format, consumed.load(Ordering::Relaxed), u64::MAX);
            let mut writer = 0;
            let read = reader.read(
                &mut memory,
                head,
                WaitPolicy::Last,
                lengths,
                &mut |item: Item<'_>| {
                    match item {
                        Item::SubBuffer { cpu, .. } => {
                            let is_index = matches!(scope, Scope::Cpu | Scope::MmCid);
                            assert!(!is_index || cpu as usize == ring);
                            writer = cpu;
                        }
                        Item::Record { id, time, payload } => {
                            each(ring as u32, writer, id, time, payload);
                        }
                        Item::Overwritten { .. } if overwrote => {}
                        Item::Gap { .. } | Item::Overwritten { .. } => {
                            return Err(format!("{item:?}"));
                        }
                    }
                    Ok(())
                },
            );
            if let Err(item) = read {
                let position = reader.position();
                let of_ring = |n: u64| {
                    let at = (position + 8 * n) as usize % bytes.len() / 8;
                    u64::from_ne_bytes(bytes.as_chunks().0[at])
                };
                let words: Vec<String> = (0..8).map(|n| format!("{:#x}", of_ring(n))).collect();
                panic!(
                    "{item} in ring {ring} of slot {slot} at {position:#x}, head {head:#x}: {words:?}"
                );
            }
        }
    }

    /// The index of the calling process, if it has areas.
    fn me(&self, table: &Table) -> Option<usize> {
        let pid = std::process::id();
        table
            .processes
            .iter()
            .position(|process| process.pid.load(Ordering::Relaxed) == pid)
    }

    fn area(&self, mapped: NonNull<u8>, slot: usize) -> u64 {
        (mapped.as_ptr().expose_provenance() + slot * self.buffers_slot_len()) as u64
    }
}

/// The addresses of this process's areas. A forked child inherits the numbers, but not the
/// mappings, until it allocates its own.
static MAPPED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

// SAFETY: the areas are as `linux/ltt.h` describes them, and stay mapped. Nothing here allocates.
// Signal handlers do not deadlock on the lock: only the calls and the test's control functions take
// it, and tests raise signals outside of those.
unsafe impl Kernel for Fake {
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        let fail = self.table().fail.load(Ordering::Relaxed);
        if fail != 0 {
            return Err(Errno::new(fail as i32));
        }
        self.locked(|table| {
            let (buffers_len, control_len) = (
                SLOTS * self.buffers_slot_len(),
                SLOTS * self.control_slot_len(),
            );
            if self.me(table).is_none() {
                let process = self.processes();
                let entry = table.processes.get(process).ok_or(Errno::ENOMEM)?;
                let buffers = self.process_offset(process);
                let areas = [
                    (buffers, buffers_len, libc::PROT_WRITE),
                    (
                        buffers + buffers_len,
                        control_len,
                        libc::PROT_READ | libc::PROT_WRITE,
                    ),
                    (0, INFO_LEN, libc::PROT_READ),
                ];
                for (area, (offset, len, protection)) in MAPPED.iter().zip(areas) {
                    let address = map(len, self.fd, offset, protection);
                    // SAFETY: this is the new mapping. Like the kernel's areas, a child does not
                    // inherit it.
                    unsafe { libc::madvise(address.as_ptr().cast(), len, libc::MADV_DONTFORK) };
                    area.store(
                        address.as_ptr().expose_provenance() as u64,
                        Ordering::Relaxed,
                    );
                }
                entry.pid.store(std::process::id(), Ordering::Relaxed);
                entry.signo.store(signo, Ordering::Relaxed);
            }
            let [buffers, control, info] =
                [0, 1, 2].map(|area: usize| MAPPED[area].load(Ordering::Relaxed));
            Ok(LttTracebuf {
                buffers,
                buffers_len: buffers_len as u64,
                control,
                control_len: control_len as u64,
                info,
                info_len: INFO_LEN as u64,
                signo,
                buffers_stride: self.buffers_slot_len() as u64,
                control_stride: self.control_slot_len() as u64,
                nr_slots: SLOTS as u32,
                ..LttTracebuf::default()
            })
        })
    }

    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno> {
        self.locked(|table| {
            table.updates.fetch_add(1, Ordering::Relaxed);
            let me = self.me(table).ok_or(Errno::ENXIO)?;
            let process = &table.processes[me];
            let generation = |slot: usize| table.traces[slot].generation.load(Ordering::Relaxed);
            let given = |slot: usize| process.given[slot].load(Ordering::Relaxed);
            let base = NonNull::new(std::ptr::with_exposed_provenance_mut(
                MAPPED[0].load(Ordering::Relaxed) as usize,
            ))
            .ok_or(Errno::ENXIO)?;
            let slot = match *buffer {
                None => {
                    let is_new =
                        |slot: &usize| table.traces[*slot].is_laid_out() && given(*slot) == 0;
                    let new = (0..SLOTS).find(is_new);
                    let Some(slot) = new else {
                        return Ok(Update::default());
                    };
                    let given_up = process.given_up.fetch_and(!(1 << slot), Ordering::Relaxed);
                    if given_up & (1 << slot) != 0 && !self.is_untouched(me, slot) {
                        table.late.fetch_add(1, Ordering::Relaxed);
                    }
                    process.given[slot].store(generation(slot), Ordering::Relaxed);
                    *buffer = NonNull::new(std::ptr::with_exposed_provenance_mut(
                        self.area(base, slot) as usize,
                    ));
                    slot
                }
                Some(address) => (0..SLOTS)
                    .find(|&slot| {
                        address.as_ptr().addr() as u64 == self.area(base, slot) && given(slot) != 0
                    })
                    .ok_or(Errno::EINVAL)?,
            };
            if given(slot) != generation(slot) {
                process.given[slot].store(0, Ordering::Relaxed);
                self.wipe(me, slot);
                process.given_up.fetch_or(1 << slot, Ordering::Relaxed);
                return Err(Errno::ENOENT);
            }
            let trace = &table.traces[slot];
            Ok(Update {
                active: trace.is_active(),
                filter: trace.filters[0].load(Ordering::Relaxed),
            })
        })
    }

    fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno> {
        self.locked(|table| {
            let process = &table.processes[self.me(table).ok_or(Errno::ENXIO)?];
            let offset = buffer.as_ptr().addr() as u64 - MAPPED[0].load(Ordering::Relaxed);
            let slot = offset as usize / self.buffers_slot_len();
            let given = process.given[slot].load(Ordering::Relaxed);
            if given == 0 {
                return Err(Errno::EINVAL);
            }
            // This gives up nothing: other threads may still write there.
            if given != table.traces[slot].generation.load(Ordering::Relaxed) {
                return Err(Errno::ENOENT);
            }
            process.switches[slot].fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    fn fire(&self, buffer: NonNull<u8>, trigger: u8) -> Result<(), Errno> {
        self.locked(|table| {
            let me = self.me(table).ok_or(Errno::ENXIO)?;
            let offset = buffer.as_ptr().addr() as u64 - MAPPED[0].load(Ordering::Relaxed);
            let slot = offset as usize / self.buffers_slot_len();
            let given = table.processes[me].given[slot].load(Ordering::Relaxed);
            let is_start = (offset as usize).is_multiple_of(self.buffers_slot_len());
            if given == 0 || trigger == 0 || !is_start {
                table.late_fires.fetch_add(1, Ordering::Relaxed);
                return Err(Errno::EINVAL);
            }
            let trace = &table.traces[slot];
            if given != trace.generation.load(Ordering::Relaxed) {
                table.late_fires.fetch_add(1, Ordering::Relaxed);
                return Err(Errno::ENOENT);
            }
            trace
                .written
                .store(self.written(me, slot), Ordering::Relaxed);
            trace.fired(trigger).fetch_add(1, Ordering::Relaxed);
            for (action, state) in [
                (&trace.stops, Trace::STOPPED),
                (&trace.starts, Trace::STARTED),
            ] {
                if action.load(Ordering::Relaxed) == u32::from(trigger) {
                    trace.state.store(state, Ordering::Relaxed);
                    self.publish(table);
                }
            }
            Ok(())
        })
    }
}
