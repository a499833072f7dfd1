//! Fresh pages, several at a time.
//!
//! The first store to each page of a ring costs a fault. To ask for the pages of a whole stretch in
//! one call costs a third of that where the reader made them in time, as it does from the first
//! sub-buffer that it sees. Where it did not, the kernel makes them now, and that is what most of
//! the time goes to, either way.
//!
//! In advance for all of a ring, it costs memory that may never be needed; so only who asks for
//! that gets it.

use crate::os::memory;

/// When the pages of a ring are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Prefault {
    /// Each when it is written to.
    Never = 0,
    /// In stretches, when a sub-buffer is begun for the first time. The first stretch comes page by
    /// page: most processes write no more than a little, and are to have no pages for more.
    Ahead = 1,
    /// All of them before the first event.
    All = 2,
}

impl Prefault {
    /// What was stored as a number.
    pub(super) fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Ahead,
            2 => Self::All,
            _ => Self::Never,
        }
    }
}

/// How much of a ring is asked for at once, if its sub-buffers are not larger.
const STRETCH: u64 = 64 << 10;

/// Asks for the pages of the sub-buffer that is to be begun at `position`, and of the following
/// ones, unless it was done before.
///
/// What is asked for is to read them: shared memory is made by that as well, and pages that are
/// there already are mapped many at a time, and so that they may be written.
///
/// Async-signal-safe; leaves `errno` alone.
pub(super) fn next(buffer: *mut u8, ring_size: u64, subbuf_size: u64, position: u64) {
    let stretch = STRETCH.max(subbuf_size).min(ring_size);
    // All are powers of two. After the first lap, the pages are there.
    if position == 0 || position >= ring_size || !position.is_multiple_of(stretch) {
        return;
    }
    let start = buffer.wrapping_add(position as usize);
    memory::populate_read(start, stretch as usize);
}

/// Asks for the pages of `len` bytes, to write to them.
///
/// Async-signal-safe; leaves `errno` alone.
pub(super) fn all(start: *mut u8, len: u64) {
    memory::populate_write(start, len as usize);
}
