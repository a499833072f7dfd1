//! Restartable sequences.
//!
//! - This file: where a thread's rseq area is, and what the sequences take and return.
//! - `registration.rs`: registers an area of our own where the C library has none.
//! - `x86_64.rs`: all that is of one architecture: the sequences themselves, the definition of the thread block
//!   (`../thread.rs`), and `vfork`. Another architecture is one more file with the same functions.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
pub(super) mod arch;
pub(super) mod registration;

use std::num::NonZeroIsize;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use usertrace_sys::uapi::LttSubbuf;

use super::channel::Control;
use super::thread;

pub(super) use self::arch::{advance, advance_at, claim, lose, note_time, record, record_words};

/// How often a sequence is tried before the record is given up.
///
/// Each try that fails was interrupted within some tens of nanoseconds: by chance this happens twice in a row at
/// most, unless something makes it happen.
pub(super) const TRIES: u32 = 32;

/// `offsetof(struct rseq, cpu_id)`
pub(super) const CPU_ID: i32 = 4;
/// Likewise, for rings whose payloads begin with contexts: another number, as channels say of them apart how many there
/// are.
pub(super) const CPU_ID_APART: i32 = 1 << 8 | CPU_ID;
/// `offsetof(struct rseq, rseq_cs)`
const RSEQ_CS: i32 = 8;
/// `offsetof(struct rseq, mm_cid)`
pub(super) const MM_CID: i32 = 24;
/// Likewise, for rings whose payloads begin with contexts.
pub(super) const MM_CID_APART: i32 = 1 << 8 | MM_CID;

/// Where `struct rseq` has what an `INDEX` stands for.
const fn offset(index: i32) -> i32 {
    index & 0xff
}

/// What [`Rseq::index`] is where there is none.
pub(super) const NO_INDEX: u32 = u32::MAX;

/// The kernel keeps `mm_cid` of registered areas: [`Rseq::find`] looked.
static HAS_MM_CID: AtomicBool = AtomicBool::new(false);

/// Where each thread's rseq area lies: proof that there is one.
///
/// `Option<Rseq>` is one word, 0 being none: with none, all channels are of the shared protocol, and the event path
/// goes to its writer directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rseq {
    /// From the thread pointer. Not 0: the thread's control block is there.
    offset: NonZeroIsize,
}

/// There can be no restartable sequences in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoRseq {
    /// A library that is not the C library registered an area for this thread, so nobody can know where it is.
    Library,
    /// The kernel has no restartable sequences, or does not let this program use them.
    Kernel,
}

impl Rseq {
    /// Asks the C library where it registered an area; if it did not, registers one for the calling thread. Other
    /// threads then register theirs with their first event.
    ///
    /// Not to be called from a signal handler.
    ///
    /// # Errors
    /// There is no area, see [`NoRseq`].
    pub fn find() -> Result<Self, NoRseq> {
        HAS_MM_CID.store(registration::knows_mm_cid(), Ordering::Relaxed);
        Self::of_library().map_or_else(registration::begin, Ok)
    }

    /// The C library's area.
    fn of_library() -> Option<Self> {
        let (offset, size) = arch::library_area();
        if offset.is_null() || size.is_null() {
            return None;
        }
        // SAFETY: the C library's, constant since before the first constructor ran.
        let (offset, size) = unsafe { (*offset, *size) };
        // A size of 0: the kernel refused it, or the library was told not to try (`glibc.pthread.rseq=0`).
        NonZeroIsize::new(offset)
            .filter(|_| size != 0)
            .map(|offset| Self { offset })
    }

    /// The thread block's area.
    fn of_block() -> Option<Self> {
        NonZeroIsize::new(arch::thread_offset()).map(|offset| Self { offset })
    }

    /// As a number that a static can hold, never 0.
    pub(crate) fn to_raw(self) -> isize {
        self.offset.get()
    }

    /// Nothing is what 0 stands for.
    ///
    /// # Safety
    /// `raw` must be 0, or come from [`Rseq::to_raw`] in this process.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: isize) -> Option<Self> {
        NonZeroIsize::new(raw).map(|offset| Self { offset })
    }

    /// The ring that the thread could write to a moment ago: by its CPU, or by what else is at `INDEX` of its area. Not
    /// a ring's number if it has none: [`NO_INDEX`] if the thread has no registered area, or that no such field.
    pub(super) fn index<const INDEX: i32>(self) -> u32 {
        let area = arch::thread_pointer().wrapping_offset(self.offset.get());
        let field = |offset: i32| {
            let field = area.wrapping_add(offset as usize).cast::<AtomicU32>();
            // SAFETY: `offset` is that of the area, which each thread has, registered or not.
            unsafe { (*field).load(Ordering::Relaxed) }
        };
        // That of an area that is not registered is negative, and its other fields are zeros.
        let registered = field(CPU_ID).cast_signed() >= 0;
        let index = if registered && (offset(INDEX) != MM_CID || has_mm_cid()) {
            field(offset(INDEX))
        } else {
            NO_INDEX
        };
        index | thread::with(|thread| thread.no_cpu.load(Ordering::Relaxed))
    }

    /// Makes the calling thread one that has a registered area, if it can be done and was not yet.
    pub(super) fn join(self) {
        if Some(self) == Self::of_block() {
            // Who cannot has no CPU number.
            let _ = registration::register();
        }
    }
}

/// The kernel keeps the concurrency ids of threads in their areas. Where it does not, all would have the same one.
pub(crate) fn has_mm_cid() -> bool {
    HAS_MM_CID.load(Ordering::Relaxed)
}

/// As if the kernel did not.
#[cfg(test)]
pub(in crate::writer) fn forget_mm_cid() {
    HAS_MM_CID.store(false, Ordering::Relaxed);
}

/// Why a sequence did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no ring for this thread's CPU, or no id: closed, wiped, with rings of another kind, or a thread without
    /// rseq.
    NoRing,
    /// The record does not fit into the sub-buffer, or there is none.
    NeedSubbuf,
    /// A full time stamp must come first.
    NeedTime,
    /// It was interrupted.
    Aborted,
    /// Something changed meanwhile.
    Again,
    /// It is longer than a sub-buffer.
    TooLong,
    /// It was dropped, and counted already.
    Lost,
}

/// How a sequence of the slow path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Committed.
    Done,
    /// What it started from holds no more: somebody else came first.
    Changed,
    /// It was interrupted.
    Aborted,
}

/// What a sequence of the slow path started from: it does something only if all of this still holds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Start {
    /// Of the channel.
    pub(super) epoch: u32,
    /// That the thread runs on; or its concurrency id.
    pub(super) cpu: u32,
    /// Of the CPU's ring.
    pub(super) control: *const Control,
    /// The ring's.
    pub(super) head: u64,
}

/// What [`advance`] stores. Pointers to where nothing is to be stored point to memory of the caller.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Advance {
    pub(super) start: Start,
    /// Gets a header word with `word_id` and the time.
    pub(super) word: *mut u64,
    pub(super) word_id: u64,
    /// Gets the full time.
    pub(super) full_time: *mut u64,
    /// Gets `second_word`, the second word of a long record.
    pub(super) second: *mut u64,
    pub(super) second_word: u64,
    /// Gets the header of a sub-buffer at `position`: all that stands before what outlives a lap.
    pub(super) subbuf: *mut LttSubbuf,
    pub(super) position: u64,
    /// What `head` becomes.
    pub(super) new_head: u64,
    /// The time: out of `advance`, and into `advance_at`.
    pub(super) time: u64,
}
