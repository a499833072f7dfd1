//! Arguments and results of the sequences of the slow path.

use usertrace_sys::uapi::LttSubbuf;

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
