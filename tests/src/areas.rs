//! The areas of this process, used without the library: these tests are about the kernel alone.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use usertrace_sys::uapi::{
    LTT_SUBBUF_MAGIC, LttInfo, LttInfoChannel, LttInfoSlot, LttInfoTrace, LttRingControl,
    LttSubbuf, LttTracebuf,
};
use usertrace_sys::{Calls, Errno, Update};

/// The areas of this process.
#[derive(Clone, Copy, Debug)]
pub struct Areas {
    /// The system calls.
    pub calls: Calls,
    /// Where the areas are.
    pub at: LttTracebuf,
}

/// Slots that the kernel has.
pub const SLOTS: usize = 16;

/// The info area's description of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The slot.
    pub slot: LttInfoSlot,
    /// The trace.
    pub trace: LttInfoTrace,
    /// The channels, also those that do not exist.
    pub channel: Vec<LttInfoChannel>,
}

impl Detail {
    /// Whether the info area describes no trace here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut channels = self.channel.iter();
        self.slot == LttInfoSlot::default()
            && self.trace == LttInfoTrace::default()
            && channels.all(|channel| *channel == LttInfoChannel::default())
    }
}

/// The system calls of this kernel.
///
/// # Panics
/// If it has none.
#[must_use]
pub fn calls() -> Calls {
    Calls::discover().expect("this is the patched kernel")
}

impl Areas {
    /// Maps the areas. `signo` is the update signal, whose handler is installed, or 0.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn map(signo: u32) -> Self {
        let calls = calls();
        let at = calls.alloc_tracebuf(signo).expect("areas");
        Self { calls, at }
    }

    /// Asks for the next trace's buffer.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn next(&self) -> Option<(Slot, Update)> {
        let mut buffer = None;
        let update = self.calls.update(&mut buffer).expect("ltt_update");
        buffer.map(|buffer| (self.slot(buffer.as_ptr() as usize), update))
    }

    /// Asks for the next trace's buffer, of which there must be one.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn must_next(&self) -> Slot {
        self.next().expect("a trace").0
    }

    /// The slot of the trace with this name, whose buffer this process has.
    ///
    /// # Panics
    /// If there is no such trace.
    #[must_use]
    pub fn of(&self, name: &str) -> Slot {
        let is_it = |slot: &usize| {
            let trace = self.info(*slot).1.trace;
            trace.name.split(|byte| *byte == 0).next() == Some(name.as_bytes())
        };
        let index = (0..self.at.nr_slots as usize).find(is_it);
        let index = index.expect("a trace of this name");
        self.slot(self.at.buffers as usize + index * self.at.buffers_stride as usize)
    }

    /// The slot with this address.
    fn slot(&self, address: usize) -> Slot {
        let len = self.at.buffers_stride as usize;
        let offset = address - self.at.buffers as usize;
        assert_eq!(offset % len, 0, "a slot's start");
        Slot {
            areas: *self,
            index: offset / len,
            address,
        }
    }

    /// A word of the info area.
    fn info_word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset is within the area, which is mapped as long as the process lives. The
        // kernel changes the area, so it is read as atomics.
        unsafe { AtomicU32::from_ptr((self.at.info as usize + offset) as *mut u32) }
    }

    fn copy<T: zerocopy::FromBytes>(&self, offset: usize) -> T {
        let words: Vec<u32> = (0..size_of::<T>() / 4)
            .map(|i| self.info_word(offset + 4 * i).load(Ordering::Relaxed))
            .collect();
        T::read_from_bytes(zerocopy::IntoBytes::as_bytes(&words[..])).expect("the size of T")
    }

    /// A consistent copy of the info area's header and of its part of one slot.
    #[must_use]
    pub fn info(&self, slot: usize) -> (LttInfo, Detail) {
        let seq = self.info_word(std::mem::offset_of!(LttInfo, seq));
        loop {
            // Pairs with the kernel's release after its last write.
            let begun = seq.load(Ordering::Acquire);
            let info: LttInfo = self.copy(0);
            let at = |offset: u32, stride: u32, n: usize| offset as usize + n * stride as usize;
            let trace = at(info.trace_offset, info.trace_stride, slot);
            let channel = |n| self.copy(trace + at(info.channel_offset, info.channel_stride, n));
            let detail = Detail {
                slot: self.copy(at(info.slot_offset, info.slot_stride, slot)),
                trace: self.copy(trace),
                channel: (0..info.nr_channels as usize).map(channel).collect(),
            };
            // Pairs with the kernel's barrier before its first write.
            fence(Ordering::Acquire);
            if begun.is_multiple_of(2) && seq.load(Ordering::Relaxed) == begun {
                return (info, detail);
            }
            std::hint::spin_loop();
        }
    }
}

/// The buffers of one trace.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The areas that contain it.
    pub areas: Areas,
    /// Which slot.
    pub index: usize,
    /// Its start in the write area, by which the system calls know it.
    pub address: usize,
}

impl Slot {
    /// The address, as the calls take it.
    ///
    /// # Panics
    /// Never: no slot is at 0.
    #[must_use]
    pub fn pointer(&self) -> NonNull<u8> {
        NonNull::new(self.address as *mut u8).expect("not 0")
    }

    /// `ltt_update` for it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn update(&self) -> Result<Update, Errno> {
        self.areas.calls.update(&mut Some(self.pointer()))
    }

    /// `ltt_switch` for it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn switch(&self) -> Result<(), Errno> {
        self.areas.calls.switch(self.pointer())
    }

    /// The info area's description of a channel.
    #[must_use]
    pub fn channel(&self, channel: usize) -> LttInfoChannel {
        self.areas.info(self.index).1.channel[channel]
    }

    /// A ring of a channel.
    #[must_use]
    pub fn ring(&self, channel: usize, ring: usize) -> Ring {
        let info = self.channel(channel);
        let len = info.subbuf_size as usize * info.subbuf_count as usize;
        let control = self.areas.at.control as usize
            + self.areas.at.control_stride as usize * self.index
            + info.control_offset as usize
            + ring * info.control_stride as usize;
        Ring {
            address: self.address + info.buffers_offset as usize + ring * len,
            len,
            subbuf_size: info.subbuf_size as usize,
            control,
            cpu: ring as u32,
        }
    }
}

/// A ring, and its control block. Only one thread may write to it.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Where it is.
    pub address: usize,
    /// Its length.
    pub len: usize,
    /// Length of a sub-buffer.
    pub subbuf_size: usize,
    /// Where its control block is.
    pub control: usize,
    /// The CPU that writes to it.
    pub cpu: u32,
}

impl Ring {
    /// A word of the control block.
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the control area, which is mapped as long as the process lives. The kernel
        // accesses it atomically, too.
        unsafe { AtomicU64::from_ptr((self.control + offset) as *mut u64) }
    }

    /// `head`
    #[must_use]
    pub fn head(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(LttRingControl, head))
    }

    /// `lost`
    #[must_use]
    pub fn lost(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(LttRingControl, lost))
    }

    /// The program's copy of `consumed`
    #[must_use]
    pub fn consumed(&self) -> &AtomicU64 {
        self.word(std::mem::offset_of!(LttRingControl, consumed))
    }

    /// Reads a byte.
    ///
    /// # Panics
    /// If it is not in the ring.
    #[must_use]
    pub fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.len);
        // SAFETY: within the ring, which can be read for as long as the process lives.
        unsafe { ((self.address + offset) as *const u8).read_volatile() }
    }

    /// Writes a byte.
    ///
    /// # Panics
    /// If it is not in the ring.
    pub fn write(&self, offset: usize, byte: u8) {
        assert!(offset < self.len);
        // SAFETY: within the ring, where no Rust object lies.
        unsafe { ((self.address + offset) as *mut u8).write_volatile(byte) }
    }

    /// Begins the ring's first sub-buffer, and writes this many records of 16 bytes, each with its
    /// number.
    ///
    /// # Panics
    /// If they are too many for a sub-buffer.
    pub fn write_records(&self, count: u64) {
        let subbuf = LttSubbuf {
            position: 0,
            time: 1,
            lost: 0,
            cpu: self.cpu,
            magic: LTT_SUBBUF_MAGIC,
            ..LttSubbuf::default()
        };
        let len = size_of::<LttSubbuf>() as u64 + 16 * count;
        assert!(len <= self.subbuf_size as u64);
        // SAFETY: within the ring, where no Rust object lies.
        unsafe {
            (self.address as *mut LttSubbuf).write_volatile(subbuf);
            let mut at = (self.address + size_of::<LttSubbuf>()) as *mut u64;
            for number in 0..count {
                // Time 1, id 1.
                at.write_volatile(0x1_0001);
                at.add(1).write_volatile(number);
                at = at.add(2);
            }
        }
        // Pairs with the kernel's acquire: whoever sees the head sees the records.
        self.head().store(len, Ordering::Release);
    }
}

/// Reads a byte of one of this process's mappings.
///
/// # Safety
/// The address must be mapped, or the process is meant to die of it.
#[must_use]
pub unsafe fn peek(address: usize) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { (address as *const u8).read_volatile() }
}

/// Writes a byte to one of this process's mappings.
///
/// # Safety
/// As [`peek`]'s, and no Rust object may be there.
pub unsafe fn poke(address: usize, byte: u8) {
    // SAFETY: the caller's promise.
    unsafe { (address as *mut u8).write_volatile(byte) }
}

/// The position after the first sub-buffer's header and so many records of 16 bytes, as
/// [`Ring::write_records`] writes them.
#[must_use]
pub const fn head_after(records: u64) -> u64 {
    size_of::<LttSubbuf>() as u64 + 16 * records
}
