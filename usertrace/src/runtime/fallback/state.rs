//! What the fallback consists of, in a process. All copies of this crate there share it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::daemon::Task;
use super::pool::Pool;
use crate::writer::Prefault;

/// The fallback, as the runtime sees it.
#[derive(Debug)]
#[repr(C)]
pub(in crate::runtime) struct Fallback {
    pub(super) pool: Pool,
    /// What is true of one process and not of its children.
    pub(super) own: NonNull<Own>,
    /// Number of the slot that is open in this address space. A child of `fork` inherits it with
    /// the mapping, and learns from it what it has to leave.
    pub(super) open: AtomicU32,
    /// One bit for each slot that something else is mapped over by now.
    pub(super) left: AtomicU64,
    /// Not 0: this is not a traced process any more, or about to fork one that is not.
    pub(super) apart: AtomicU32,
    /// The PID namespace that this process, or one that it descends from, entered since the daemons
    /// were started; see [`Entry::namespace`](super::header::Entry::namespace).
    pub(super) namespace: AtomicU64,
    /// Address space for the rings, in bytes, if `RLIMIT_AS` made it less than was asked for; else
    /// 0.
    pub(super) limited: u64,
    /// Nothing is to be said on standard error.
    pub(super) quiet: bool,
    pub(super) prefault: Prefault,
    pub(super) task: Task,
}

// SAFETY: all that it points to is atomic and stays.
unsafe impl Send for Fallback {}
// SAFETY: likewise.
unsafe impl Sync for Fallback {}

/// In memory that `fork` wipes in the child.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Own {
    /// Number of this process's slot, plus 1.
    pub(super) slot: AtomicU32,
    /// Not 0: somebody is about to take a slot.
    pub(super) busy: AtomicU32,
    /// Not 0: it was told of the trace.
    pub(super) told: AtomicU32,
    /// Not 0: it waited for a slot once, and got none.
    pub(super) refused: AtomicU32,
}

/// As part of what copies of this crate share.
pub(in crate::runtime) const LEN: usize = size_of::<Fallback>();
