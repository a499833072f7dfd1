//! State of the fallback in a traced process. All copies of this crate in the process share it.

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
    /// State of this process that its children do not inherit.
    pub(super) process: NonNull<ProcessState>,
    /// Number of the slot that is accessible in this address space. A child of `fork` inherits it
    /// with the mapping, and has to detach that slot.
    pub(super) open: AtomicU32,
    /// A bit for each slot that this address space is detached from: private memory replaces it.
    pub(super) detached_slots: AtomicU64,
    /// Not 0: this process is not traced any more, or is about to fork one that is not.
    pub(super) untraced: AtomicU32,
    /// The PID namespace that this process or an ancestor has entered since the start of the
    /// daemons; see [`Entry::namespace`](super::header::Entry::namespace).
    pub(super) namespace: AtomicU64,
    /// Address space for the rings, in bytes, if `RLIMIT_AS` made it less than was asked for; else
    /// 0.
    pub(super) limited: u64,
    /// Whether to write nothing to standard error.
    pub(super) quiet: bool,
    pub(super) prefault: Prefault,
    pub(super) task: Task,
}

// SAFETY: all that it points to is atomic and never unmapped.
unsafe impl Send for Fallback {}
// SAFETY: likewise.
unsafe impl Sync for Fallback {}

/// State of one process, in memory that `fork` wipes in the child.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ProcessState {
    /// Number of this process's slot, plus 1; 0: none.
    pub(super) slot: AtomicU32,
    /// Not 0: a thread is about to take a slot.
    pub(super) busy: AtomicU32,
    /// Not 0: the runtime knows of the trace.
    pub(super) told: AtomicU32,
    /// Not 0: the process waited for a slot once, and got none.
    pub(super) refused: AtomicU32,
}

/// Size of [`Fallback`], a part of what copies of this crate share.
pub(in crate::runtime) const LEN: usize = size_of::<Fallback>();
