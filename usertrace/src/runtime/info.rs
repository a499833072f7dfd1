//! Reads the info area, under its seqlock.
//!
//! The area itself describes its layout. The library checks the layout before use, because the
//! kernel may be newer.

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

/// Attempts of a reader. The kernel writes for less than a microsecond, and is not preempted
/// meanwhile.
const TRIES: u32 = 1 << 20;

/// A field by which the kernel describes the areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
#[allow(
    missing_docs,
    reason = "the names are those of the fields in `linux/ltt.h`"
)]
pub enum AreaField {
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

impl AreaField {
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

/// A field of the areas' description with an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadArea {
    /// The field.
    pub field: AreaField,
    /// Its value.
    pub value: u64,
}

impl BadArea {
    /// Builds it from the number of an [`AreaField`]; none if that is unknown.
    pub(super) fn from_number(number: u32, value: u64) -> Option<Self> {
        let mut all = AreaField::ALL.into_iter().map(|(field, _)| field);
        let field = all.find(|field| *field as u32 == number)?;
        Some(Self { field, value })
    }
}

impl fmt::Display for BadArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = AreaField::ALL
            .into_iter()
            .find(|(field, _)| *field == self.field);
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

/// The info area with its checked layout: all parts lie inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Info {
    area: InfoArea,
    slots: Part,
    traces: Part,
    filters: Part,
    /// Relative to the start of a trace's part.
    channels: Part,
    /// Space for rules after the head of a filter, in bytes.
    rules_size: usize,
}

/// The position of an array, and the number of elements that this library reads.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u32,
    stride: u32,
    count: u32,
}

impl Part {
    /// Checks an array of `count` elements in an area of `len` bytes. The library reads `size`
    /// bytes of each, and only the first `limit` elements. None if it is misaligned or does not
    /// fit.
    fn new(
        (offset, stride): (u32, u32),
        count: u32,
        limit: usize,
        size: u64,
        len: u64,
    ) -> Option<Self> {
        let last = u64::from(count.checked_sub(1)?) * u64::from(stride);
        let end = u64::from(offset) + last + size;
        let is_good = offset.is_multiple_of(8)
            && stride.is_multiple_of(8)
            && u64::from(stride) >= size
            && end <= len;
        is_good.then(|| Self {
            offset,
            stride,
            count: count.min(limit as u32),
        })
    }

    /// The offset of an element; none if there is no such element.
    fn at(&self, index: usize) -> Option<usize> {
        let is_one = index < self.count as usize;
        is_one.then(|| self.offset as usize + index * self.stride as usize)
    }

    /// The end of the last of `count` elements of `size` bytes.
    fn end(&self, count: u32, size: u64) -> u64 {
        u64::from(self.offset) + u64::from(count.saturating_sub(1)) * u64::from(self.stride) + size
    }
}

/// True if the slot has a trace that was started or allocated at least once. Before that its rings
/// have no layout, and the kernel gives no buffers for it.
pub(super) fn is_laid_out(slot: &LttInfoSlot) -> bool {
    slot.generation != 0 && slot.nr_channels != 0
}

impl InfoArea {
    /// # Safety
    /// `start` must point to an info area of `len` bytes, at least the size of [`LttInfo`], that
    /// stays mapped.
    pub(super) unsafe fn new(start: NonNull<u8>, len: u64) -> Self {
        Self { start, len }
    }

    /// The generation, which changes with each change of the area. Only a hint, because it is read
    /// without the seqlock.
    pub(super) fn generation(self) -> u64 {
        // SAFETY: `LttInfo` lies inside the area (contract of `new`), and the field is aligned.
        unsafe { self.at::<AtomicU64>(offset_of!(LttInfo, generation)) }.load(Ordering::Relaxed)
    }

    /// A bit for each slot whose trace is active now. Only a hint, likewise.
    pub(super) fn active(self) -> u32 {
        // SAFETY: as in `generation`.
        unsafe { self.at::<AtomicU32>(offset_of!(LttInfo, active)) }.load(Ordering::Relaxed)
    }

    /// The checked layout of the area, which has `nr_slots` slots; none if the kernel has not
    /// written it yet.
    pub(super) fn info(self, nr_slots: u32) -> Option<Result<Info, BadArea>> {
        let word = |offset: usize| {
            // SAFETY: all calls pass offsets of fields of `LttInfo`, which lies inside the area.
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
        let check = |good: bool, field: AreaField, value: u32| {
            let value = u64::from(value);
            if good {
                Ok(())
            } else {
                Err(BadArea { field, value })
            }
        };
        let read = || {
            let version = field!(version);
            check(version == LTT_ABI_VERSION, AreaField::Version, version)?;
            let slots = field!(nr_slots);
            check(slots == nr_slots, AreaField::InfoSlots, slots)?;
            let channels = field!(nr_channels);
            let is_number = (1..=LTT_MAX_CHANNELS).contains(&(channels as usize));
            check(is_number, AreaField::Channels, channels)?;
            let rules_size = field!(rules_size);
            let is_inside = rules_size.is_multiple_of(4) && u64::from(rules_size) <= self.len;
            check(is_inside, AreaField::RulesSize, rules_size)?;

            let part = |at: (u32, u32), field: AreaField, count, limit, size: u64, len| {
                let value = u64::from(at.0);
                Part::new(at, count, limit, size, len).ok_or(BadArea { field, value })
            };
            let slot = (field!(slot_offset), field!(slot_stride));
            let trace = (field!(trace_offset), field!(trace_stride));
            let filter = (field!(filter_offset), field!(filter_stride));
            let channel = (field!(channel_offset), field!(channel_stride));
            let size = size_of::<LttInfoChannel>() as u64;
            let (len, channel_len) = (self.len, u64::from(trace.1));
            let of_channels = part(
                channel,
                AreaField::ChannelOffset,
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
                slots: part(slot, AreaField::SlotOffset, slots, SLOTS, slot_size, len)?,
                traces: part(trace, AreaField::TraceOffset, slots, SLOTS, trace_size, len)?,
                filters: part(
                    filter,
                    AreaField::FilterOffset,
                    slots,
                    SLOTS,
                    filter_size,
                    len,
                )?,
                channels: of_channels,
                rules_size: rules_size as usize,
            })
        };
        Some(read())
    }

    /// # Safety
    /// A `T` at that offset must lie inside the area, be aligned, and consist of atomics.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: the contract of this function: a `T` of atomics lies there, aligned and inside
        // the area.
        unsafe { &*self.start.as_ptr().add(offset).cast::<T>() }
    }

    /// # Safety
    /// The bytes must lie inside the area. Offset and size must be multiples of 4, and any bytes
    /// must be a valid `T`.
    unsafe fn copy<T: Copy>(&self, offset: usize) -> T {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        for at in (0..size_of::<T>()).step_by(4) {
            // SAFETY: the `T` lies inside the area (contract of this function). The accesses are
            // atomic words, because the kernel may write meanwhile.
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
        // SAFETY: the loop above wrote all bytes.
        unsafe { value.assume_init() }
    }
}

impl Info {
    /// The area's generation; see [`InfoArea::generation`].
    pub(super) fn generation(&self) -> u64 {
        self.area.generation()
    }

    /// Reads a slot's entry.
    ///
    /// Like [`channel`](Self::channel), it returns a small part: this runs on signal stacks, which
    /// may have only a few KiB.
    pub(super) fn slot(&self, slot: usize) -> Option<LttInfoSlot> {
        let at = self.slots.at(slot)?;
        // SAFETY: `Part::new` checked that the entry lies inside the area; any bytes are valid.
        self.consistent(|| unsafe { self.area.copy(at) })
    }

    /// The clock of the trace with this generation, `LTT_CLOCK_*`; none if the slot has another
    /// trace.
    pub(super) fn clock(&self, slot: usize, generation: u64) -> Option<u32> {
        let trace = self.traces.at(slot)?;
        let read = || {
            // SAFETY: `Part::new` checked that the trace's part lies inside the area; any bytes are
            // valid.
            unsafe {
                let is: u64 = self.area.copy(trace + offset_of!(LttInfoTrace, generation));
                let clock = self.area.copy(trace + offset_of!(LttInfoTrace, clock));
                (is == generation).then_some(clock)
            }
        };
        self.consistent(read).flatten()
    }

    /// Reads the entry of a channel of the trace with this generation; none if the slot has another
    /// trace.
    pub(super) fn channel(
        &self,
        slot: usize,
        generation: u64,
        channel: usize,
    ) -> Option<LttInfoChannel> {
        let trace = self.traces.at(slot)?;
        let at = trace + self.channels.at(channel)?;
        // Only the mode and filter of a channel may change while the trace has this generation.
        let read = || {
            // SAFETY: `Part::new` checked that the trace's part, with its channels, lies inside the
            // area; any bytes are valid.
            unsafe {
                let is: u64 = self.area.copy(trace + offset_of!(LttInfoTrace, generation));
                (is == generation).then(|| self.area.copy(at))
            }
        };
        self.consistent(read).flatten()
    }

    /// Copies the rules of the trace with this generation into `rules`, and returns whether they
    /// changed; none if the slot has another trace.
    pub(super) fn rules(&self, slot: usize, generation: u64, rules: &mut Rules) -> Option<bool> {
        let filter = self.filters.at(slot)?;
        let mut changed = false;
        let read = || {
            // SAFETY: `Part::new` checked that the head, and `rules_size` bytes after it, lie
            // inside the area; any bytes are valid.
            let (is, len): (u64, u32) = unsafe {
                (
                    self.area
                        .copy(filter + offset_of!(LttInfoFilter, generation)),
                    self.area.copy(filter + offset_of!(LttInfoFilter, len)),
                )
            };
            // Ignore rules of an impossible length.
            let len = (len as usize <= self.rules_size).then_some(len as usize);
            // A torn read counts as a change, too.
            changed |= is == generation
                && rules.copy(len.unwrap_or(0), |at| {
                    // SAFETY: likewise; `rules_size` is a multiple of 4.
                    unsafe { self.area.copy(filter + size_of::<LttInfoFilter>() + at) }
                });
            is == generation
        };
        self.consistent(read)?.then_some(changed)
    }

    /// Repeats `read` until the kernel did not write meanwhile; none after too many attempts.
    fn consistent<T>(&self, mut read: impl FnMut() -> T) -> Option<T> {
        // SAFETY: the counter is a field of `LttInfo`, which lies inside the area.
        let seq = unsafe { self.area.at::<AtomicU32>(offset_of!(LttInfo, seq)) };
        for _ in 0..TRIES {
            // Pairs with the kernel's store at the end of a change: the reads below see that
            // change.
            let before = seq.load(Ordering::Acquire);
            if before % 2 == 0 {
                let value = read();
                // Pairs with the kernel's barrier at the start of a change: if `read` saw any part
                // of a newer change, the next load sees its counter.
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
