//! A cell of a table that counts, as `struct ltt_count_cell` in `linux/ltt.h` lays it out.

use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

use usertrace_sys::uapi::{LTT_COUNT_BUCKETS, LttCountCell, LttCountState};

/// Words of a state.
pub(super) const STATE_WORDS: usize = size_of::<LttCountState>() / 8;

/// The words of a state, in this order.
pub(super) const SUM_LOW: usize = 0;
pub(super) const SUM_HIGH: usize = 1;
pub(super) const MIN: usize = 2;
pub(super) const MAX: usize = 3;
pub(super) const BUCKET: usize = 4;

/// A cell, up to what cells without values have.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Cell {
    pub(super) count: AtomicU64,
    /// The id of the event, and in the upper half the length of the key.
    pub(super) name: AtomicU64,
    pub(super) key: [AtomicU64; 4],
}

/// What a cell of a table with values has behind that.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CellValues {
    pub(super) state: [[AtomicU64; STATE_WORDS]; 2],
    pub(super) histogram: [AtomicU64; LTT_COUNT_BUCKETS],
}

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(offset_of!(Cell, count) == offset_of!(LttCountCell, count));
    assert!(offset_of!(Cell, name) == offset_of!(LttCountCell, id));
    assert!(offset_of!(LttCountCell, key_len) == offset_of!(LttCountCell, id) + 4);
    assert!(offset_of!(Cell, key) == offset_of!(LttCountCell, key));
    assert!(size_of::<Cell>() == offset_of!(LttCountCell, state));
    assert!(size_of::<Cell>() + size_of::<CellValues>() == size_of::<LttCountCell>());
    let histogram = size_of::<Cell>() + offset_of!(CellValues, histogram);
    assert!(histogram == offset_of!(LttCountCell, histogram));
    assert!(offset_of!(LttCountState, sum_low) == 8 * SUM_LOW);
    assert!(offset_of!(LttCountState, sum_high) == 8 * SUM_HIGH);
    assert!(offset_of!(LttCountState, min) == 8 * MIN);
    assert!(offset_of!(LttCountState, max) == 8 * MAX);
    assert!(offset_of!(LttCountState, bucket) == 8 * BUCKET);
};
