//! Reads the info area.
//!
//! Where it has what, the area itself tells. All of that is checked before it is used: the kernel
//! may be a newer one.

use std::fmt;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use usertrace_sys::uapi::{
    LTT_ABI_VERSION, LTT_INFO_MAGIC, LTT_MAX_CHANNELS, LttInfo, LttInfoChannel, LttInfoFilter,
    LttInfoSlot, LttInfoTrace,
};

use usertrace_sys::filter::Rules;
use usertrace_sys::limits::{CHANNELS, SLOTS};

/// How often a reader tries. The kernel writes for less than a microsecond, and is not preempted
/// meanwhile.
const TRIES: u32 = 1 << 20;

/// What the kernel tells of the areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
#[allow(
    missing_docs,
    reason = "the names are those of the fields in `linux/ltt.h`"
)]
pub enum Told {
    Slots = 1,
    BuffersStride,
    ControlStride,
    InfoLen,
    Buffers,
    Control,
    Info,
    Version,
    InfoSlots,
    Channels,
    SlotOffset,
    TraceOffset,
    ChannelOffset,
    FilterOffset,
    RulesSize,
}

impl Told {
    const ALL: [(Self, &'static str); 15] = [
        (Self::Slots, "ltt_tracebuf.nr_slots"),
        (Self::BuffersStride, "ltt_tracebuf.buffers_stride"),
        (Self::ControlStride, "ltt_tracebuf.control_stride"),
        (Self::InfoLen, "ltt_tracebuf.info_len"),
        (Self::Buffers, "ltt_tracebuf.buffers"),
        (Self::Control, "ltt_tracebuf.control"),
        (Self::Info, "ltt_tracebuf.info"),
        (Self::Version, "ltt_info.version"),
        (Self::InfoSlots, "ltt_info.nr_slots"),
        (Self::Channels, "ltt_info.nr_channels"),
        (Self::SlotOffset, "ltt_info.slot_offset or slot_stride"),
        (Self::TraceOffset, "ltt_info.trace_offset or trace_stride"),
        (
            Self::ChannelOffset,
            "ltt_info.channel_offset or channel_stride",
        ),
        (
            Self::FilterOffset,
            "ltt_info.filter_offset or filter_stride",
        ),
        (Self::RulesSize, "ltt_info.rules_size"),
    ];
}

/// Something that the kernel tells of the areas, and that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadArea {
    /// What it is.
    pub told: Told,
    /// What the kernel says that it is.
    pub value: u64,
}

impl BadArea {
    /// With the number of a [`Told`]; nothing if it is none.
    pub(super) fn from_number(number: u32, value: u64) -> Option<Self> {
        let mut all = Told::ALL.into_iter().map(|(told, _)| told);
        let told = all.find(|told| *told as u32 == number)?;
        Some(Self { told, value })
    }
}

impl fmt::Display for BadArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Told::ALL.into_iter().find(|(told, _)| *told == self.told);
        write!(
            f,
            "the kernel's trace areas are not as this library knows them: {} is {}",
            name.map_or("?", |(_, name)| name),
            self.value
        )
    }
}

/// The info area: the kernel writes it, under a seqlock, while this process reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InfoArea {
    start: NonNull<u8>,
    len: u64,
}

/// The info area, and where it has what: all of it lies inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Info {
    area: InfoArea,
    slots: Part,
    traces: Part,
    filters: Part,
    /// From the start of a trace's part.
    channels: Part,
    /// Room for rules behind the head of a filter.
    rules_size: usize,
}

/// Where an array is, and how much of it this library reads.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u32,
    stride: u32,
    count: u32,
}

impl Part {
    /// Of `told` elements at an offset of an area of `len` bytes, each of which begins with `size`
    /// bytes that are read; the first `room` of them are looked at.
    fn new(
        (offset, stride): (u32, u32),
        told: u32,
        room: usize,
        size: u64,
        len: u64,
    ) -> Option<Self> {
        let last = u64::from(told.checked_sub(1)?) * u64::from(stride);
        let end = u64::from(offset) + last + size;
        let is_good = offset.is_multiple_of(8)
            && stride.is_multiple_of(8)
            && u64::from(stride) >= size
            && end <= len;
        is_good.then(|| Self {
            offset,
            stride,
            count: told.min(room as u32),
        })
    }

    /// Where an element is.
    fn at(&self, index: usize) -> Option<usize> {
        let is_one = index < self.count as usize;
        is_one.then(|| self.offset as usize + index * self.stride as usize)
    }

    /// Where the last of all ends, that are told, if each has so many bytes.
    fn end(&self, told: u32, size: u64) -> u64 {
        u64::from(self.offset) + u64::from(told.saturating_sub(1)) * u64::from(self.stride) + size
    }
}

/// There is a trace in a slot, and it was started, or allocated, at least once: before that, its
/// rings have no layout, and the kernel gives no buffers of it.
pub(super) fn is_laid_out(slot: &LttInfoSlot) -> bool {
    slot.generation != 0 && slot.nr_channels != 0
}

impl InfoArea {
    /// # Safety
    /// `start` must be the start of an info area of `len` bytes, a [`LttInfo`] at least, that stays
    /// mapped.
    pub(super) unsafe fn new(start: NonNull<u8>, len: u64) -> Self {
        Self { start, len }
    }

    /// Changes with each change of the area. Only a hint: it is read without the seqlock.
    pub(super) fn generation(self) -> u64 {
        // SAFETY: inside the area, aligned, and atomic.
        unsafe { self.at::<AtomicU64>(offset_of!(LttInfo, generation)) }.load(Ordering::Relaxed)
    }

    /// Where the area, with so many slots, has what; nothing if the kernel has not written it yet.
    pub(super) fn info(self, nr_slots: u32) -> Option<Result<Info, BadArea>> {
        let word = |offset: usize| {
            // SAFETY: callers ask for fields of `LttInfo`, which lies inside the area.
            unsafe { self.at::<AtomicU32>(offset) }.load(Ordering::Relaxed)
        };
        macro_rules! field {
            ($name:ident) => {
                word(offset_of!(LttInfo, $name))
            };
        }
        if field!(magic) != LTT_INFO_MAGIC {
            return None;
        }
        let check = |good: bool, told: Told, value: u32| {
            let value = u64::from(value);
            if good {
                Ok(())
            } else {
                Err(BadArea { told, value })
            }
        };
        let read = || {
            let version = field!(version);
            check(version == LTT_ABI_VERSION, Told::Version, version)?;
            let slots = field!(nr_slots);
            check(slots == nr_slots, Told::InfoSlots, slots)?;
            let channels = field!(nr_channels);
            let is_number = (1..=LTT_MAX_CHANNELS).contains(&(channels as usize));
            check(is_number, Told::Channels, channels)?;
            let rules_size = field!(rules_size);
            let is_inside = rules_size.is_multiple_of(4) && u64::from(rules_size) <= self.len;
            check(is_inside, Told::RulesSize, rules_size)?;

            let part = |at: (u32, u32), told: Told, count, room, size: u64, len| {
                let value = u64::from(at.0);
                Part::new(at, count, room, size, len).ok_or(BadArea { told, value })
            };
            let slot = (field!(slot_offset), field!(slot_stride));
            let trace = (field!(trace_offset), field!(trace_stride));
            let filter = (field!(filter_offset), field!(filter_stride));
            let channel = (field!(channel_offset), field!(channel_stride));
            let size = size_of::<LttInfoChannel>() as u64;
            let (len, channel_len) = (self.len, u64::from(trace.1));
            let of_channels = part(
                channel,
                Told::ChannelOffset,
                channels,
                CHANNELS,
                size,
                channel_len,
            )?;
            // A trace's part ends with its channels.
            let trace_size = of_channels
                .end(channels, size)
                .max(size_of::<LttInfoTrace>() as u64);
            let filter_size = size_of::<LttInfoFilter>() as u64 + u64::from(rules_size);
            let slot_size = size_of::<LttInfoSlot>() as u64;
            Ok(Info {
                area: self,
                slots: part(slot, Told::SlotOffset, slots, SLOTS, slot_size, len)?,
                traces: part(trace, Told::TraceOffset, slots, SLOTS, trace_size, len)?,
                filters: part(filter, Told::FilterOffset, slots, SLOTS, filter_size, len)?,
                channels: of_channels,
                rules_size: rules_size as usize,
            })
        };
        Some(read())
    }

    /// # Safety
    /// A `T` at that offset must lie inside the area, be aligned, and consist of atomics.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: a `T` of atomics lies there, aligned and inside the area, as this function's
        // caller promises.
        unsafe { &*self.start.as_ptr().add(offset).cast::<T>() }
    }

    /// # Safety
    /// The bytes must lie inside the area, at a multiple of 4 and as many as a multiple of 4, and
    /// any bytes must be a value of `T`.
    unsafe fn copy<T: Copy>(&self, offset: usize) -> T {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        for at in (0..size_of::<T>()).step_by(4) {
            // SAFETY: the `T` lies inside the area, as this function's caller promises; word by
            // word and atomic, because the kernel may write meanwhile.
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

impl Info {
    /// See [`InfoArea::generation`].
    pub(super) fn generation(&self) -> u64 {
        self.area.generation()
    }

    /// What the area says about a slot.
    ///
    /// Like [`channel`](Self::channel), it returns little: this runs on signal stacks, which may
    /// have a few KiB.
    pub(super) fn slot(&self, slot: usize) -> Option<LttInfoSlot> {
        let at = self.slots.at(slot)?;
        // SAFETY: `Part::new` found that it lies inside the area; any bytes are good.
        self.consistent(|| unsafe { self.area.copy(at) })
    }

    /// The clock of the trace with this generation, `LTT_CLOCK_*`, if that is in the slot.
    pub(super) fn clock(&self, slot: usize, generation: u64) -> Option<u32> {
        let trace = self.traces.at(slot)?;
        let read = || {
            // SAFETY: `Part::new` found that the trace's part lies inside the area; any bytes are
            // good.
            unsafe {
                let is: u64 = self.area.copy(trace + offset_of!(LttInfoTrace, generation));
                let clock = self.area.copy(trace + offset_of!(LttInfoTrace, clock));
                (is == generation).then_some(clock)
            }
        };
        self.consistent(read).flatten()
    }

    /// What the area says about a channel of the trace with this generation, if that is in the
    /// slot.
    pub(super) fn channel(
        &self,
        slot: usize,
        generation: u64,
        channel: usize,
    ) -> Option<LttInfoChannel> {
        let trace = self.traces.at(slot)?;
        let at = trace + self.channels.at(channel)?;
        // Of what a trace's channels are like, only mode and filter change while it has this
        // generation.
        let read = || {
            // SAFETY: `Part::new` found that the trace's part, with its channels, lies inside the
            // area; any bytes are good.
            unsafe {
                let is: u64 = self.area.copy(trace + offset_of!(LttInfoTrace, generation));
                (is == generation).then(|| self.area.copy(at))
            }
        };
        self.consistent(read).flatten()
    }

    /// Makes `rules` those of the trace with this generation, and says whether they are others than
    /// before; nothing if that trace is not in the slot.
    pub(super) fn rules(&self, slot: usize, generation: u64, rules: &mut Rules) -> Option<bool> {
        let filter = self.filters.at(slot)?;
        let mut changed = false;
        let read = || {
            // SAFETY: `Part::new` found that the head, and room for rules, lie inside the area; any
            // bytes are good.
            let (is, len): (u64, u32) = unsafe {
                (
                    self.area
                        .copy(filter + offset_of!(LttInfoFilter, generation)),
                    self.area.copy(filter + offset_of!(LttInfoFilter, len)),
                )
            };
            // Rules beyond the room are none.
            let len = (len as usize <= self.rules_size).then_some(len as usize);
            // What was read while the kernel wrote is another one, too.
            changed |= is == generation
                && rules.copy(len.unwrap_or(0), |at| {
                    // SAFETY: likewise, as the room is a multiple of 4.
                    unsafe { self.area.copy(filter + size_of::<LttInfoFilter>() + at) }
                });
            is == generation
        };
        self.consistent(read)?.then_some(changed)
    }

    /// Reads until the kernel did not write meanwhile.
    fn consistent<T>(&self, mut read: impl FnMut() -> T) -> Option<T> {
        // SAFETY: the counter lies inside the area.
        let seq = unsafe { self.area.at::<AtomicU32>(offset_of!(LttInfo, seq)) };
        for _ in 0..TRIES {
            // Pairs with the kernel's store at the end of a change: what is read below is not
            // older.
            let before = seq.load(Ordering::Acquire);
            if before % 2 == 0 {
                let value = read();
                // Pairs with the kernel's barrier at the start of a change: if anything newer was
                // read, the counter that is read next is newer, too.
                fence(Ordering::Acquire);
                if seq.load(Ordering::Relaxed) == before {
                    return Some(value);
                }
            }
            std::hint::spin_loop();
        }
        None
    }
}
