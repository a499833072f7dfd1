//! `include/linux/ltt.h` in Rust: the same names, values and layouts.
//!
//! `tests/layout.rs` compares every size, offset and constant here with the result of a C compiler
//! for the header. The header documents the fields; the comments here only add what Rust programs
//! need.
//!
//! No structure has padding, and each bit pattern is a valid value, so all can be read from and
//! written to plain bytes ([`zerocopy`]). So values must be checked before they are trusted.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the ABI that this crate describes.
pub const LTT_ABI_VERSION: u32 = 2;

/// Upper bound of the number of slots, for readers that allocate memory. [`LttTracebuf`] and
/// [`LttInfo`] have the actual number.
pub const LTT_MAX_TRACES: usize = 32;
/// Upper bound of the channels in one trace, likewise.
pub const LTT_MAX_CHANNELS: usize = 32;
/// Length of a trace's or channel's name, with the NUL.
pub const LTT_NAME_LEN: usize = 32;
/// Length of a task's name, with the NUL.
pub const LTT_COMM_LEN: usize = 16;

/// The `prctl` option that finds the system calls.
pub const PR_LTT_GET_ABI: u32 = 0x4c54_5442;

/// The answer of `prctl(PR_LTT_GET_ABI)`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttAbi {
    /// In: size of this structure. Out: the size that the kernel knows.
    pub size: u32,
    /// Out: [`LTT_ABI_VERSION`].
    pub version: u32,
    /// Out: feature bits.
    pub features: u64,
    /// Out: number of `alloc_tracebuf`.
    pub nr_alloc_tracebuf: u32,
    /// Out: number of `ltt_update`.
    pub nr_ltt_update: u32,
    /// Out: number of `ltt_switch`.
    pub nr_ltt_switch: u32,
    /// Zero.
    pub reserved: u32,
}

/// The argument and the result of `alloc_tracebuf`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttTracebuf {
    /// Out: the write area: `nr_slots` slots.
    pub buffers: u64,
    /// Out: its length.
    pub buffers_len: u64,
    /// Out: the read/write area: `nr_slots` slots.
    pub control: u64,
    /// Out: its length.
    pub control_len: u64,
    /// Out: the read-only area, which begins with an [`LttInfo`].
    pub info: u64,
    /// Out: its length.
    pub info_len: u64,
    /// In: the update signal; 0: none.
    pub signo: u32,
    /// In: 0.
    pub flags: u32,
    /// Out: size of a slot of the write area.
    pub buffers_stride: u64,
    /// Out: size of a slot of the read/write area.
    pub control_stride: u64,
    /// Out: slots, at most [`LTT_MAX_TRACES`].
    pub nr_slots: u32,
    /// Out: `LTT_TRACEBUF_*`.
    pub status: u32,
}

/// Size of [`LttTracebuf`] in version 2 of the ABI.
pub const LTT_TRACEBUF_SIZE_VER2: u32 = 80;

/// [`LttTracebuf::status`]: `RLIMIT_AS` made the slots of the write area smaller. The kernel passes
/// over traces whose rings do not fit into them.
pub const LTT_TRACEBUF_LIMITED: u32 = 0x1;

/// [`LttInfo::magic`].
pub const LTT_INFO_MAGIC: u32 = 0x4c54_5449;

/// The clock is x86's `rdtsc`.
pub const LTT_CLOCK_TSC: u32 = 1;
/// The clock is arm64's `cntvct_el0`.
pub const LTT_CLOCK_CNTVCT: u32 = 2;
/// The clock is riscv's `rdtime`.
pub const LTT_CLOCK_TIME: u32 = 3;
/// The clock is `CLOCK_MONOTONIC`, in ns, on machines whose processor's counter is not valid.
pub const LTT_CLOCK_MONOTONIC: u32 = 4;

/// A slot in the first part of the info area.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttInfoSlot {
    /// Generation of the trace in this slot, never reused; 0: no trace.
    pub generation: u64,
    /// Not 0: the trace is active.
    pub active: u32,
    /// Its filter mask: bit n accepts events of log level n.
    pub filter: u32,
    /// Number of channels of the trace.
    pub nr_channels: u32,
    /// Zero.
    pub reserved: [u32; 3],
}

/// The first part of the info area. Written by the kernel under the seqlock `seq`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttInfo {
    /// [`LTT_INFO_MAGIC`], or 0 until the first trace of the system is active.
    pub magic: u32,
    /// [`LTT_ABI_VERSION`].
    pub version: u32,
    /// The seqlock: odd while the kernel writes.
    pub seq: u32,
    /// Size of this structure in the kernel.
    pub size: u32,
    /// Changes with each change of the area.
    pub generation: u64,
    /// One bit for each slot whose trace is active.
    pub active: u32,
    /// Rings of a per-CPU channel; CPU numbers are below it.
    pub nr_cpus: u32,
    /// Number of slots, as in [`LttTracebuf`].
    pub nr_slots: u32,
    /// Channels that a trace can have, at most [`LTT_MAX_CHANNELS`].
    pub nr_channels: u32,
    /// Offset of the first [`LttInfoSlot`] in the area.
    pub slot_offset: u32,
    /// Distance between two of these.
    pub slot_stride: u32,
    /// Offset of the first [`LttInfoTrace`] in the area.
    pub trace_offset: u32,
    /// Distance between two of these.
    pub trace_stride: u32,
    /// Offset of the first [`LttInfoFilter`] in the area.
    pub filter_offset: u32,
    /// Distance between two of these.
    pub filter_stride: u32,
    /// Offset of the first [`LttInfoChannel`] in its [`LttInfoTrace`].
    pub channel_offset: u32,
    /// Distance between two of these.
    pub channel_stride: u32,
    /// Bytes for rules after an [`LttInfoFilter`].
    pub rules_size: u32,
    /// Zero.
    pub reserved: [u32; 13],
}

/// The channel has a ring for each CPU.
pub const LTT_SCOPE_CPU: u32 = 0;
/// The channel has a ring for each thread.
pub const LTT_SCOPE_THREAD: u32 = 1;
/// The channel has one ring for the process.
pub const LTT_SCOPE_GLOBAL: u32 = 2;
/// The channel has a ring for each `mm_cid` of `struct rseq`.
pub const LTT_SCOPE_MM_CID: u32 = 3;

/// A full ring drops new records.
pub const LTT_MODE_DISCARD: u32 = 0;
/// A full ring drops its oldest sub-buffer.
pub const LTT_MODE_OVERWRITE: u32 = 1;
/// A full ring makes its writers wait.
pub const LTT_MODE_BLOCK: u32 = 2;

/// There is no ring, but a table that counts events.
pub const LTT_MODE_COUNT: u32 = 3;

/// Whole records are committed by one store of `head`.
pub const LTT_PROTOCOL_RSEQ: u32 = 0;
/// Atomic reserve and commit.
pub const LTT_PROTOCOL_SHARED: u32 = 1;
/// A table of [`LttCountCell`].
pub const LTT_PROTOCOL_COUNT: u32 = 2;

/// The channel of the metadata records.
pub const LTT_CHANNEL_CONTROL: usize = 0;
/// The channel of the events.
pub const LTT_CHANNEL_MAIN: usize = 1;

/// Geometry of a channel.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttInfoChannel {
    /// Its name, with a NUL.
    pub name: [u8; LTT_NAME_LEN],
    /// Offset of ring 0 in the trace's slot of the write area.
    pub buffers_offset: u64,
    /// Offset of ring 0's [`LttRingControl`] in the trace's slot of the control area.
    pub control_offset: u64,
    /// A power of two, a multiple of 4096.
    pub subbuf_size: u32,
    /// A power of two, at least 2.
    pub subbuf_count: u32,
    /// Ring `n` starts at `n * subbuf_size * subbuf_count`.
    pub nr_rings: u32,
    /// Distance between control blocks.
    pub control_stride: u32,
    /// `LTT_SCOPE_*`.
    pub scope: u32,
    /// `LTT_MODE_*`.
    pub mode: u32,
    /// `LTT_PROTOCOL_*`.
    pub protocol: u32,
    /// 32-bit filter mask, from channel 2 on; may change at any time, as `mode` may.
    pub filter: u32,
    /// [`LTT_MODE_COUNT`]: `LTT_COUNT_CELL_*`; otherwise 0.
    pub cell_size: u32,
    /// Zero.
    pub reserved: [u32; 7],
}

/// A trace's part of the info area. [`LttInfo`] says where its channels, [`LttInfoChannel`], are.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttInfoTrace {
    /// Its name, with a NUL.
    pub name: [u8; LTT_NAME_LEN],
    /// The same as in its [`LttInfoSlot`].
    pub generation: u64,
    /// `LTT_CLOCK_*`.
    pub clock: u32,
    /// Zero.
    pub reserved0: u32,
    /// Frequency of the clock in Hz; 0: unknown.
    pub clock_freq: u64,
    /// Zero.
    pub reserved: [u64; 9],
}

/// The filter of the trace in a slot. [`LttInfoRule`] follow, each followed by its pattern.
///
/// The last matching rule of a channel decides; without one, it refuses. The rules of channel 0 are
/// the trace's: events that they refuse are not written. An event that the trace accepts goes to
/// the first channel from 2 on that accepts it, or else to main.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttInfoFilter {
    /// The same as in the trace's [`LttInfoSlot`].
    pub generation: u64,
    /// Bytes of rules, at most [`LttInfo::rules_size`].
    pub len: u32,
    /// Zero.
    pub reserved: u32,
}

/// A rule; its pattern follows.
///
/// A pattern consists of letters, digits, and `_-.:`, and `*` for any characters, `?` for any one.
/// With a colon it is compared with `PROVIDER:NAME`, else with `NAME`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttInfoRule {
    /// Index of the channel; 0: the trace. With [`LTT_RULE_TRIGGER`] the number of the trigger.
    pub channel: u8,
    /// `LTT_RULE_*`
    pub flags: u8,
    /// Bytes of the pattern, without NUL, at least 1.
    pub len: u8,
}

/// Flag of a rule: matching events are not wanted.
pub const LTT_RULE_REFUSE: u8 = 0x1;
/// Flag of an entry that is not a rule: the pattern is the name of a context, which records of the
/// channel begin with.
pub const LTT_RULE_CONTEXT: u8 = 0x2;

/// With [`LTT_RULE_REFUSE`]: accepts what matches if the expression that follows is true, and
/// otherwise refuses it.
pub const LTT_RULE_ACCEPT_IF: u8 = 0x4;

/// With [`LTT_RULE_REFUSE`]: refuses what matches if the expression that follows is true.
pub const LTT_RULE_REFUSE_IF: u8 = 0x8;

/// The pattern is a piece of the expression of the rule before it.
pub const LTT_RULE_EXPR: u8 = 0x10;

/// Flag of an entry that is not a rule: the pattern of a trigger. The channel is the trigger's
/// number.
pub const LTT_RULE_TRIGGER: u8 = 0x20;

/// Flag of an entry that is not a rule: the pattern is the name of the field whose values the
/// channel adds up.
pub const LTT_RULE_VALUE: u8 = 0x40;

/// Flag of an entry that is not a rule: the pattern is the name of the field, or `$ctx.NAME`, whose
/// values the channel counts apart.
pub const LTT_RULE_KEY: u8 = 0x80;

/// The longest expression, in bytes.
pub const LTT_EXPR_MAX: usize = 2048;

/// The deepest nesting of parentheses in an expression.
pub const LTT_EXPR_DEPTH: usize = 64;

/// Upper bound of the number of contexts of a channel.
pub const LTT_MAX_CONTEXTS: usize = 16;
/// Addresses in the context `callstack`, at most.
pub const LTT_CALLSTACK_MAX: usize = 64;

/// Upper bound of the number of triggers of a trace.
pub const LTT_MAX_TRIGGERS: usize = 8;

/// A ring's positions, in the control area.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttRingControl {
    /// [`LTT_PROTOCOL_RSEQ`]: everything below is committed. [`LTT_PROTOCOL_SHARED`]: everything
    /// below is reserved.
    pub head: u64,
    /// Records that were dropped because the ring was full.
    pub lost: u64,
    /// Newest full time stamp in the ring.
    pub time: u64,
    /// In ring 0 of the control channel: number of event ids given so far in this process and
    /// trace. It is here because several tracing libraries in one process share nothing else.
    pub ids: u64,
    /// [`LTT_MODE_OVERWRITE`]: everything below may be overwritten already.
    pub claimed: u64,
    /// [`LTT_SCOPE_THREAD`]: the thread that writes here; 0: free.
    pub owner: u32,
    /// [`LTT_MODE_BLOCK`]: number of writers that wait for `consumed` to grow.
    pub waiters: u32,
    /// [`LTT_MODE_BLOCK`]: 0: there is no reader; the kernel's copy for the writer.
    pub readers: u32,
    /// Zero.
    pub reserved: u32,
    /// Zero.
    pub reserved0: u64,
    /// Everything below may be overwritten: the kernel's copy for the writer.
    pub consumed: u64,
    /// Zero.
    pub reserved1: [u64; 7],
}

/// [`LttSubbuf::magic`].
pub const LTT_SUBBUF_MAGIC: u32 = 0x4c54_5453;

/// In [`LttSubbuf::busy`]: the place is taken, not skipped.
pub const LTT_PLACE_TAKEN: u32 = 0x1;
/// In [`LttSubbuf::busy`]: shift of the lap of the ring that the decision is about, from 1 on.
pub const LTT_PLACE_LAP_SHIFT: u32 = 1;

/// The header at the start of each sub-buffer that was begun.
///
/// Values of an earlier lap persist: `committed` and `busy` are never reset. If a writer of an
/// earlier lap has not left a place, the ring skips it: the header there keeps its old position,
/// and the next place is taken. [`LTT_PROTOCOL_RSEQ`]: a writer is there if `busy` is not 0.
/// [`LTT_PROTOCOL_SHARED`]: a writer is there if `committed` is not the sub-buffer's size times
/// `takes`; `busy` records the decision, before `head` goes there.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttSubbuf {
    /// Position of this header.
    pub position: u64,
    /// The time when the sub-buffer was begun.
    pub time: u64,
    /// The ring's count of lost records then.
    pub lost: u64,
    /// [`LTT_SCOPE_CPU`]: the CPU that writes here. [`LTT_SCOPE_THREAD`]: the thread.
    pub cpu: u32,
    /// [`LTT_SUBBUF_MAGIC`].
    pub magic: u32,
    /// [`LTT_PROTOCOL_SHARED`]: `committed`, when the sub-buffer was begun.
    pub base: u64,
    /// [`LTT_PROTOCOL_SHARED`]: total bytes ever committed at this place.
    pub committed: u64,
    /// [`LTT_PROTOCOL_SHARED`]: from `position` up to here everything is committed.
    pub contiguous: u64,
    /// [`LTT_PROTOCOL_RSEQ`]: number of long records in progress here. [`LTT_PROTOCOL_SHARED`]: the
    /// last decision, `LTT_PLACE_*`.
    pub busy: u32,
    /// [`LTT_PROTOCOL_SHARED`]: number of times that the place was taken, modulo 2^32.
    pub takes: u32,
}

/// What a cell knows of the values of an event. The cell has two of these.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCountState {
    /// Lower half of the sum of all values, which is 128 bits in two's complement.
    pub sum_low: u64,
    /// Upper half of it.
    pub sum_high: u64,
    /// The lowest value, signed if the field is.
    pub min: u64,
    /// The highest value, likewise.
    pub max: u64,
    /// 0 before the first value. Otherwise the index of the last value's bucket, shifted by
    /// [`LTT_COUNT_BUCKET_SHIFT`], and the number of values in that bucket.
    pub bucket: u64,
}

/// Cells that a writer looks at before it takes the overflow cell, which is cell 0.
pub const LTT_COUNT_PROBES: usize = 16;
/// Buckets of a histogram. Bucket 0 has values up to 0, bucket `n` those from `2^(n-1)` and below
/// `2^n`, and the last one all above, too.
pub const LTT_COUNT_BUCKETS: usize = 64;
/// Shift of the index in [`LttCountState::bucket`].
pub const LTT_COUNT_BUCKET_SHIFT: u32 = 56;
/// Bytes of a text as a key; the rest is cut off.
pub const LTT_COUNT_KEY_MAX: usize = 32;
/// [`LttCountCell::key_len`] of a number.
pub const LTT_COUNT_KEY_NUMBER: u32 = u32::MAX;
/// Size of a cell without values: the part up to `key`, and padding.
pub const LTT_COUNT_CELL_PLAIN: u32 = 64;
/// Size of a cell with values.
pub const LTT_COUNT_CELL_VALUE: u32 = 640;

/// A cell of a table that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LttCountCell {
    /// Number of events; 0: the cell is free. The store of this commits an update.
    pub count: u64,
    /// Id of the event; 0 in the overflow cell.
    pub id: u32,
    /// Bytes of a text in `key`, or [`LTT_COUNT_KEY_NUMBER`]; 0: the event has no key.
    pub key_len: u32,
    /// The key, with zeros behind it.
    pub key: [u64; LTT_COUNT_KEY_MAX / 8],
    /// [`LTT_COUNT_CELL_VALUE`]: `state[count & 1]` is current.
    pub state: [LttCountState; 2],
    /// [`LTT_COUNT_CELL_VALUE`]: number of values in each bucket. The current state has a newer
    /// value for one of them.
    pub histogram: [u64; LTT_COUNT_BUCKETS],
}

impl Default for LttCountCell {
    fn default() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }
}

const _: () = assert!(size_of::<LttCountCell>() == LTT_COUNT_CELL_VALUE as usize);

/// Bits of a record's header word for the event's id; the other bits are time.
pub const LTT_ID_BITS: u32 = 16;
/// Never written: the rest of the sub-buffer is empty.
pub const LTT_ID_NONE: u16 = 0;
/// Smallest id of an event.
pub const LTT_ID_MIN: u16 = 1;
/// Largest id of an event.
pub const LTT_ID_MAX: u16 = 0xffef;
/// There was no memory: the rest of the sub-buffer is lost. See [`LTT_LOST_WORD`].
pub const LTT_ID_LOST: u16 = 0xfffb;
/// Describes an event.
pub const LTT_ID_META: u16 = 0xfffc;
/// A long record: a second word follows, see `LTT_LONG_*`.
pub const LTT_ID_LONG: u16 = 0xfffd;
/// A full time stamp follows, 8 bytes.
pub const LTT_ID_TIME: u16 = 0xfffe;
/// Padding: the rest of the sub-buffer is empty.
pub const LTT_ID_PAD: u16 = 0xffff;

/// A long record's second word: length of the whole record.
pub const LTT_LONG_LEN_MASK: u64 = 0xffff_ffff;
/// A long record's second word: shift of the event's id.
pub const LTT_LONG_ID_SHIFT: u32 = 32;
/// A long record's second word: the event's id, after the shift.
pub const LTT_LONG_ID_MASK: u64 = 0xffff;
/// A long record's second word: its payload is complete.
pub const LTT_LONG_DONE: u64 = 1 << 62;
/// A long record's second word: the record is reserved, and its payload is undefined.
pub const LTT_LONG_BUSY: u64 = 1 << 63;

/// The value of each word that readers see in place of a page without memory. Records that overlap
/// it are lost, and so is the rest of the sub-buffer.
pub const LTT_LOST_WORD: u64 = 0x4c54_544c_4f53_0000 | LTT_ID_LOST as u64;

/// Longest payload of a [`LTT_ID_META`] record, with the NUL.
pub const LTT_META_MAX: usize = 2048;

/// One instant, as read from three clocks.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttClockSync {
    /// The trace's clock.
    pub cycles: u64,
    /// `CLOCK_MONOTONIC` then, in ns.
    pub monotonic: u64,
    /// `CLOCK_REALTIME` then, in ns.
    pub realtime: u64,
    /// Frequency of the trace's clock in Hz; 0: unknown, compare two of these.
    pub freq: u64,
}

/// The process has ended, or executed another program.
pub const LTT_FILE_DEAD: u32 = 0x1;
/// The trace is not active.
pub const LTT_FILE_STOPPED: u32 = 0x2;
/// The trace was removed.
pub const LTT_FILE_REMOVED: u32 = 0x4;
/// The clock became invalid after the trace was created: times of different CPUs may be misordered.
pub const LTT_FILE_CLOCK_UNSTABLE: u32 = 0x8;

/// The process and channel of a consumer file ([`LTT_IOC_INFO`]).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttFileInfo {
    /// Size of this structure in the kernel.
    pub size: u32,
    /// `LTT_FILE_*`.
    pub flags: u32,
    /// Process id in the initial namespace, at `alloc_tracebuf`.
    pub pid: u32,
    /// User id in the initial namespace, at `alloc_tracebuf`.
    pub uid: u32,
    /// Start of the process, `CLOCK_BOOTTIME` in ns.
    pub start_time: u64,
    /// Number of this process's buffers, never reused.
    pub process: u64,
    /// Generation of the trace.
    pub trace_generation: u64,
    /// Name of the task that called `alloc_tracebuf`.
    pub comm: [u8; LTT_COMM_LEN],
    /// `LTT_CLOCK_*`.
    pub clock: u32,
    /// Index of the channel in its trace.
    pub channel_index: u32,
    /// The time when the trace was created.
    pub start: LttClockSync,
    /// The time of the ioctl.
    pub now: LttClockSync,
    /// Number of pages whose first write found no memory.
    pub sunk: u64,
    /// Zero.
    pub reserved: [u64; 3],
    /// Name of the trace, with a NUL.
    pub trace: [u8; LTT_NAME_LEN],
    /// The channel.
    pub channel: LttInfoChannel,
}

/// Size of [`LttFileInfo`] in version 2 of the ABI.
pub const LTT_FILE_INFO_SIZE_VER2: u32 = 304;
/// Size of [`LttRingPositions`] in version 2 of the ABI.
pub const LTT_RING_POSITIONS_SIZE_VER2: u32 = 32;
/// Size of [`LttPositions`] in version 2 of the ABI.
pub const LTT_POSITIONS_SIZE_VER2: u32 = 24;
/// Size of [`LttConsume`] in version 2 of the ABI.
pub const LTT_CONSUME_SIZE_VER2: u32 = 16;
/// Size of [`LttEndSubbuf`] in version 2 of the ABI.
pub const LTT_END_SUBBUF_SIZE_VER2: u32 = 8;

/// Positions of one ring.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttRingPositions {
    /// From the control block, which the process may corrupt: check it.
    pub head: u64,
    /// Likewise unchecked.
    pub lost: u64,
    /// Likewise unchecked.
    pub claimed: u64,
    /// The kernel's own value.
    pub consumed: u64,
}

/// Asks for the positions of all rings of a consumer file ([`LTT_IOC_POSITIONS`]).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttPositions {
    /// In: address of `nr_rings` [`LttRingPositions`].
    pub rings: u64,
    /// In: capacity. Out: number of rings.
    pub nr_rings: u32,
    /// Out: `LTT_FILE_*`.
    pub flags: u32,
    /// In: the caller's size of [`LttRingPositions`].
    pub stride: u32,
    /// Zero.
    pub reserved: u32,
}

/// Moves the position up to which a ring was consumed ([`LTT_IOC_CONSUME`]).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttConsume {
    /// The ring.
    pub ring: u32,
    /// Zero.
    pub reserved: u32,
    /// `consumed <= position <= head`.
    pub position: u64,
}

/// All rings of a file, in [`LttEndSubbuf`].
pub const LTT_RING_ALL: u32 = u32::MAX;

/// Ends the current sub-buffer of a ring, if it has records ([`LTT_IOC_END_SUBBUF`]).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttEndSubbuf {
    /// The ring, or [`LTT_RING_ALL`].
    pub ring: u32,
    /// Zero.
    pub reserved: u32,
}

const IOC_WRITE: u32 = 1;
const IOC_READ: u32 = 2;

/// `_IOC` of `asm-generic/ioctl.h`, for a `T`.
const fn ioc<T>(direction: u32, nr: u32) -> u32 {
    (direction << 30) | ((size_of::<T>() as u32) << 16) | ((b'L' as u32) << 8) | nr
}

/// Reads a [`LttFileInfo`].
pub const LTT_IOC_INFO: u32 = ioc::<LttFileInfo>(IOC_READ, 0x20);
/// Reads all positions.
pub const LTT_IOC_POSITIONS: u32 = ioc::<LttPositions>(IOC_READ | IOC_WRITE, 0x21);
/// Moves one ring's consumed position.
pub const LTT_IOC_CONSUME: u32 = ioc::<LttConsume>(IOC_WRITE, 0x22);
/// Ends the current sub-buffer of a ring of a CPU, on that CPU.
pub const LTT_IOC_END_SUBBUF: u32 = ioc::<LttEndSubbuf>(IOC_WRITE, 0x23);
