//! Populates the pages of rings ahead of the writer.
//!
//! The first store to each page of a ring costs a page fault. To populate a stretch of pages in one
//! call costs a third of that where the reader allocated them in time, as it does from the first
//! sub-buffer that it sees. Otherwise the kernel allocates them during the call, which takes most
//! of the time either way.
//!
//! To populate a whole ring in advance costs memory that may never be needed, so it is an option.

use crate::os::memory;

/// When a writer populates the pages of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Prefault {
    /// Each page when it is written to, by a page fault.
    Never = 0,
    /// In stretches, when a sub-buffer is begun for the first time. Pages of the first stretch come
    /// by faults, as most processes write only a little, and must not cost more memory.
    Ahead = 1,
    /// All pages before the first event.
    All = 2,
}

impl Prefault {
    /// The variant with this number.
    pub(super) fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Ahead,
            2 => Self::All,
            _ => Self::Never,
        }
    }
}

/// Bytes to populate at once, unless a sub-buffer is larger.
const STRETCH: u64 = 64 << 10;

/// Populates the stretch that begins with the sub-buffer at `position`, in the first lap of a ring.
///
/// It populates for reading. In shared memory, this allocates pages, too, and maps existing pages
/// many at a time, writable.
///
/// Async-signal-safe; leaves `errno` alone.
pub(super) fn next(buffer: *mut u8, ring_size: u64, subbuf_size: u64, position: u64) {
    let stretch = STRETCH.max(subbuf_size).min(ring_size);
    // All are powers of two. After the first lap, the pages exist.
    if position == 0 || position >= ring_size || !position.is_multiple_of(stretch) {
        return;
    }
    let start = buffer.wrapping_add(position as usize);
    memory::populate_read(start, stretch as usize);
}

/// Populates the pages of `len` bytes for writing.
///
/// Async-signal-safe; leaves `errno` alone.
pub(super) fn all(start: *mut u8, len: u64) {
    memory::populate_write(start, len as usize);
}
