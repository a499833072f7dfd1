//! What the sequences of the slow path take and return.

use usertrace_sys::uapi::LttSubbuf;

use crate::writer::channel::Control;

/// How a sequence of the slow path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::writer) enum Step {
    /// Committed.
    Done,
    /// What it started from holds no more: somebody else came first.
    Changed,
    /// It was interrupted.
    Aborted,
}

/// What a sequence of the slow path started from: it does something only if all of this still
/// holds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::writer) struct Start {
    /// Of the channel.
    pub(in crate::writer) epoch: u32,
    /// That the thread runs on; or its concurrency id.
    pub(in crate::writer) cpu: u32,
    /// Of the CPU's ring.
    pub(in crate::writer) control: *const Control,
    /// The ring's.
    pub(in crate::writer) head: u64,
}

/// What [`advance`](super::advance) stores. Pointers to where nothing is to be stored point to
/// memory of the caller.
#[derive(Debug)]
#[repr(C)]
pub(in crate::writer) struct Advance {
    pub(in crate::writer) start: Start,
    /// Gets a header word with `word_id` and the time.
    pub(in crate::writer) word: *mut u64,
    pub(in crate::writer) word_id: u64,
    /// Gets the full time.
    pub(in crate::writer) full_time: *mut u64,
    /// Gets `second_word`, the second word of a long record.
    pub(in crate::writer) second: *mut u64,
    pub(in crate::writer) second_word: u64,
    /// Gets the header of a sub-buffer at `position`: all that stands before what outlives a lap.
    pub(in crate::writer) subbuf: *mut LttSubbuf,
    pub(in crate::writer) position: u64,
    /// What `head` becomes.
    pub(in crate::writer) new_head: u64,
    /// The time: out of `advance`, and into `advance_at`.
    pub(in crate::writer) time: u64,
}
