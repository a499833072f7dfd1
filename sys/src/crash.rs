//! `include/linux/ltt_crash.h` in Rust: the directory by which a dump of physical memory is read.
//!
//! As in [`crate::uapi`], names and layouts are the header's, and `tests/layout.rs` compares them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::uapi::{LTT_COMM_LEN, LTT_NAME_LEN, LttClockSync, LttInfoChannel};

/// [`LttCrashRoot::magic`]; also to be found by scanning.
pub const LTT_CRASH_MAGIC: u64 = 0x544f_4f52_5454_4cab;
/// [`LttCrashPage::magic`].
pub const LTT_CRASH_PAGE_MAGIC: u64 = 0x4745_5249_44ab_544c;
/// [`LttCrashReserved::magic`].
pub const LTT_CRASH_RESERVED_MAGIC: u64 = 0x5345_5253_44ab_544c;
/// [`LttCrashRoot::version`].
pub const LTT_CRASH_VERSION: u32 = 2;

/// The root page.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashRoot {
    /// [`LTT_CRASH_MAGIC`].
    pub magic: u64,
    /// [`LTT_CRASH_VERSION`].
    pub version: u32,
    /// Bytes in a page of the dumped kernel.
    pub page_size: u32,
    /// Size of a [`LttCrashEntry`].
    pub entry_size: u32,
    /// `LTT_CLOCK_*` of the processor, which [`boot`](Self::boot) is of.
    pub clock: u32,
    /// Makes the 64-bit words before it, and itself, add up to 0.
    pub sum: u64,
    /// Physical address of the first [`LttCrashPage`]; 0: there was no trace yet.
    pub directory: u64,
    /// When the root was made.
    pub boot: LttClockSync,
}

/// The first page of a part of the memory that was reserved for traces at boot, and that a reset
/// leaves alone. All that its root page leads to is in the same part.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashReserved {
    /// [`LTT_CRASH_RESERVED_MAGIC`].
    pub magic: u64,
    /// Physical address of this page.
    pub start: u64,
    /// Of the part, in bytes, this page included.
    pub size: u64,
    /// Grows with each boot.
    pub boot: u64,
    /// Makes the 64-bit words before it, and itself, add up to 0.
    pub sum: u64,
    /// Zero.
    pub reserved: [u64; 3],
    /// Its root page.
    pub root: LttCrashRoot,
}

/// Header of a page of the directory; entries follow up to the page's end.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashPage {
    /// [`LTT_CRASH_PAGE_MAGIC`].
    pub magic: u64,
    /// Physical address of the next page, or 0.
    pub next: u64,
    /// Zero.
    pub reserved: [u64; 30],
}

/// The entry means nothing.
pub const LTT_CRASH_FREE: u32 = 0;
/// The entry is a [`LttCrashTrace`].
pub const LTT_CRASH_TRACE: u32 = 1;
/// The entry is a [`LttCrashChannel`].
pub const LTT_CRASH_CHANNEL: u32 = 2;
/// The entry is a [`LttCrashProcess`].
pub const LTT_CRASH_PROCESS: u32 = 3;
/// The entry is a [`LttCrashBuffer`].
pub const LTT_CRASH_BUFFER: u32 = 4;

/// A trace, for as long as it exists.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashTrace {
    /// Never reused.
    pub generation: u64,
    /// With a NUL.
    pub name: [u8; LTT_NAME_LEN],
    /// Its slot in the areas.
    pub slot: u32,
    /// Not 0: active.
    pub active: u32,
    /// When it was created.
    pub start: LttClockSync,
    /// `LTT_CLOCK_*` of its events.
    pub clock: u32,
    /// Not 0: the clock became invalid after the trace was created, as far as the kernel had
    /// noticed.
    pub clock_unstable: u32,
}

/// A channel of a trace, from when its geometry is fixed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashChannel {
    /// Generation of its trace.
    pub trace: u64,
    /// Which channel of its trace.
    pub index: u32,
    /// Zero.
    pub reserved: u32,
    /// Its geometry.
    pub channel: LttInfoChannel,
}

/// A process that has buffers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashProcess {
    /// Its number, never reused.
    pub process: u64,
    /// `CLOCK_BOOTTIME` in ns.
    pub start_time: u64,
    /// In the initial namespace.
    pub pid: u32,
    /// In the initial namespace.
    pub uid: u32,
    /// Not 0: gone, or executed another program.
    pub dead: u32,
    /// Zero.
    pub reserved: u32,
    /// Name of the task that called `alloc_tracebuf`.
    pub comm: [u8; LTT_COMM_LEN],
}

/// A word of a tree: there is a page.
pub const LTT_CRASH_PRESENT: u64 = 0x1;
/// A word of a tree, at the lowest level: something was written for which there was no memory.
/// Readers see a page of [`LTT_LOST_WORD`](crate::uapi::LTT_LOST_WORD).
pub const LTT_CRASH_LOST: u64 = 0x2;
/// A word of a tree: the page's physical address.
pub const LTT_CRASH_ADDRESS: u64 = 0xffff_ffff_ffff_f000;

/// A tree of pages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashTree {
    /// A word as those in the tree.
    pub root: u64,
    /// Pages that the tree can stand for.
    pub pages: u64,
    /// 1: root is a page of words that stand for pages.
    pub depth: u32,
    /// Zero.
    pub reserved: u32,
}

/// The pages of one process for one trace.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashBuffer {
    /// Number of the process.
    pub process: u64,
    /// Generation of the trace.
    pub trace: u64,
    /// The trace's slot of the write area.
    pub buffers: LttCrashTree,
    /// The trace's slot of the control area.
    pub control: LttCrashTree,
}

/// Words in the union of a [`LttCrashEntry`].
pub const LTT_CRASH_ENTRY_WORDS: usize = 30;

/// An entry of the directory. The header's union is `words` here, read by
/// [`LttCrashEntry::content`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashEntry {
    /// `LTT_CRASH_*`.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// Of the publication, grows.
    pub serial: u64,
    /// The entry's content, by `kind`.
    pub words: [u64; LTT_CRASH_ENTRY_WORDS],
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LttCrashContent {
    /// Nothing.
    Free,
    /// A trace.
    Trace(LttCrashTrace),
    /// A channel.
    Channel(LttCrashChannel),
    /// A process.
    Process(LttCrashProcess),
    /// Pages of a process.
    Buffer(LttCrashBuffer),
    /// A kind that this crate does not know.
    Unknown(u32),
}

impl LttCrashEntry {
    /// The content, by its kind.
    #[must_use]
    pub fn content(&self) -> LttCrashContent {
        match self.kind {
            LTT_CRASH_FREE => LttCrashContent::Free,
            LTT_CRASH_TRACE => LttCrashContent::Trace(self.prefix()),
            LTT_CRASH_CHANNEL => LttCrashContent::Channel(self.prefix()),
            LTT_CRASH_PROCESS => LttCrashContent::Process(self.prefix()),
            LTT_CRASH_BUFFER => LttCrashContent::Buffer(self.prefix()),
            unknown => LttCrashContent::Unknown(unknown),
        }
    }

    /// The first words as a `T`.
    fn prefix<T: FromBytes + IntoBytes>(&self) -> T {
        const { assert!(size_of::<T>() <= LTT_CRASH_ENTRY_WORDS * 8) };
        let mut value = T::new_zeroed();
        value
            .as_mut_bytes()
            .copy_from_slice(&self.words.as_bytes()[..size_of::<T>()]);
        value
    }
}
