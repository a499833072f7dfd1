//! Arguments and results of the sequences of the slow path.

use std::sync::atomic::AtomicU64;

use usertrace_sys::uapi::LttSubbuf;

use crate::writer::cell::{Cell, STATE_WORDS};
use crate::writer::channel::Control;

/// How a sequence of the slow path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::writer) enum Step {
    /// Committed.
    Done,
    /// A value in [`Start`] had changed: another writer, or an update, came first.
    Changed,
    /// The kernel aborted it.
    Aborted,
}

/// The state that a sequence of the slow path starts from. It does nothing if any of this changed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::writer) struct Start {
    /// The channel's epoch.
    pub(in crate::writer) epoch: u32,
    /// The CPU that the thread runs on, or its concurrency id.
    pub(in crate::writer) cpu: u32,
    /// Control block of the CPU's ring.
    pub(in crate::writer) control: *const Control,
    /// The ring's head.
    pub(in crate::writer) head: u64,
}

/// Each update of a cell whose count is a multiple of this takes the slow path. That follows
/// traces, as the begin of a sub-buffer does for events that are recorded: a process that does not
/// react to the update signal learns that a trace was stopped.
pub(in crate::writer) const SLOW_EACH: u64 = 256;

/// The cell that an event is counted in. A sequence does nothing if any of this changed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::writer) struct CellStart {
    /// The channel's epoch.
    pub(in crate::writer) epoch: u32,
    /// The CPU that the thread runs on.
    pub(in crate::writer) cpu: u32,
    /// A cell in the table of that CPU.
    pub(in crate::writer) cell: *const Cell,
    /// The cell's count; 0: the cell is free.
    pub(in crate::writer) count: u64,
}

/// The stores of [`update_cell`](super::update_cell). A pointer to memory of the caller makes a
/// store harmless that is not wanted.
#[derive(Debug)]
#[repr(C)]
pub(in crate::writer) struct CellUpdate {
    pub(in crate::writer) start: CellStart,
    /// Only for a free cell: its event and key.
    pub(in crate::writer) name: u64,
    pub(in crate::writer) key: *const [u64; 4],
    /// Only for a free cell: the table's head, and its size.
    pub(in crate::writer) head: *const AtomicU64,
    pub(in crate::writer) table_size: u64,
    /// Address for `folded`, the count of a histogram's bucket.
    pub(in crate::writer) bucket: *const AtomicU64,
    pub(in crate::writer) folded: u64,
    /// Address for `state`.
    pub(in crate::writer) state_at: *const [AtomicU64; STATE_WORDS],
    pub(in crate::writer) state: [u64; STATE_WORDS],
}

/// The stores of [`advance`](super::advance). A pointer to memory of the caller makes a store
/// harmless that is not wanted.
#[derive(Debug)]
#[repr(C)]
pub(in crate::writer) struct Advance {
    pub(in crate::writer) start: Start,
    /// Address for a header word, with `word_id` and the time.
    pub(in crate::writer) word: *mut u64,
    pub(in crate::writer) word_id: u64,
    /// Address for the full time.
    pub(in crate::writer) full_time: *mut u64,
    /// Address for `second_word`, the second word of a long record.
    pub(in crate::writer) second: *mut u64,
    pub(in crate::writer) second_word: u64,
    /// Address for the header of a sub-buffer at `position`, up to the fields that outlive a lap.
    pub(in crate::writer) subbuf: *mut LttSubbuf,
    pub(in crate::writer) position: u64,
    /// The new value of `head`.
    pub(in crate::writer) new_head: u64,
    /// The time: a result of `advance`, an argument of `advance_at`.
    pub(in crate::writer) time: u64,
}
