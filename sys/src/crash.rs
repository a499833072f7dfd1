//! `include/linux/ltt_crash.h` in Rust: the directory of traces in a dump of physical memory.
//!
//! Names and layouts are the header's, as in [`crate::uapi`]; `tests/layout.rs` compares them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::uapi::{LTT_COMM_LEN, LTT_NAME_LEN, LttClockSync, LttInfoChannel};

/// [`LttCrashRoot::magic`]; a search of memory can find it.
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
    /// `LTT_CLOCK_*` of the processor, the clock of [`boot`](Self::boot).
    pub clock: u32,
    /// Checksum: the 64-bit words up to and including it add up to 0.
    pub sum: u64,
    /// Physical address of the first [`LttCrashPage`]; 0 before the first trace.
    pub directory: u64,
    /// The time when the root page was created.
    pub boot: LttClockSync,
}

/// The first page of a part of the memory that is reserved for traces at boot, and that a reset
/// preserves. All pages that its root page refers to are in the same part.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashReserved {
    /// [`LTT_CRASH_RESERVED_MAGIC`].
    pub magic: u64,
    /// Physical address of this page.
    pub start: u64,
    /// Size of the part in bytes, including this page.
    pub size: u64,
    /// Increases with each boot.
    pub boot: u64,
    /// Checksum: the 64-bit words up to and including it add up to 0.
    pub sum: u64,
    /// Zero.
    pub reserved: [u64; 3],
    /// The root page of the part.
    pub root: LttCrashRoot,
}

/// Header of a page of the directory; entries follow up to the end of the page.
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

/// The entry is free.
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
    /// The time when it was created.
    pub start: LttClockSync,
    /// `LTT_CLOCK_*` of its events.
    pub clock: u32,
    /// Not 0: the kernel found the clock invalid after the trace was created.
    pub clock_unstable: u32,
}

/// A channel of a trace, after its geometry is fixed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashChannel {
    /// Generation of its trace.
    pub trace: u64,
    /// Index of the channel in its trace.
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
    /// Start of the process, `CLOCK_BOOTTIME` in ns.
    pub start_time: u64,
    /// In the initial namespace.
    pub pid: u32,
    /// In the initial namespace.
    pub uid: u32,
    /// Not 0: the process has ended, or executed another program.
    pub dead: u32,
    /// Zero.
    pub reserved: u32,
    /// Name of the task that called `alloc_tracebuf`.
    pub comm: [u8; LTT_COMM_LEN],
}

/// A word of a tree: the page is present.
pub const LTT_CRASH_PRESENT: u64 = 0x1;
/// A word of a tree, at the lowest level: a write found no memory for the page. Readers see a page
/// of [`LTT_LOST_WORD`](crate::uapi::LTT_LOST_WORD).
pub const LTT_CRASH_LOST: u64 = 0x2;
/// A word of a tree: the page's physical address.
pub const LTT_CRASH_ADDRESS: u64 = 0xffff_ffff_ffff_f000;

/// A tree of pages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LttCrashTree {
    /// The root, a word like those in the tree.
    pub root: u64,
    /// Number of pages that the tree can map.
    pub pages: u64,
    /// Levels of the tree; 1: the root page has the words of pages.
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
    /// Serial number of the publication, which grows.
    pub serial: u64,
    /// The entry's content, by `kind`.
    pub words: [u64; LTT_CRASH_ENTRY_WORDS],
}

/// The content of an entry.
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
