//! Tracks which threads are inside rings of the shared protocol, so that a thread that closes a
//! channel knows when the channel is quiescent (A9).
//!
//! In RCU's terms, a writer is inside a read-side critical section of the *channel*: it relies on
//! what the channel says. The [`Readers`] here are therefore writers of rings. Restartable
//! sequences need none of this, as the kernel restarts them.
//!
//! A thread announces itself by plain stores, which cost an event next to nothing. The thread that
//! closes a channel makes up for the missing barrier: after the close, and before it looks here, it
//! makes the kernel execute a full barrier in every running thread of the process (`membarrier`).
//! Either a thread had announced itself before its barrier, or it sees after it that the channel is
//! closed. Userspace RCU and hazard pointers divide the work in the same way.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};

use super::remembered::Remembered;
use super::thread::{self, Thread};
use crate::os;
use crate::unwind::{LastWalk, StackMemo, Walks};

/// Threads that can have a slot at the same time. Further threads count themselves in the channel,
/// by atomic instructions.
const SLOTS: usize = 1024;

/// Threads of them that can remember whole stacks. Each has 37 KiB for them, which count as memory
/// where the kernel does not promise more than there is.
const STACK_SLOTS: usize = 64;

/// One thread's slot.
#[derive(Debug)]
#[repr(C)]
struct ReaderSlot {
    /// Address of the thread's block, by which the thread knows that the slot is its own.
    block: AtomicUsize,
    /// The thread's id; 0: the slot is free.
    thread: AtomicU32,
    /// A bit for each trace slot whose rings the thread is in.
    inside: AtomicU32,
}

/// The slots of a process's threads. Zeros are valid: all slots are free.
///
/// A thread's slot stays taken after its end, until a new thread finds no free one.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Readers {
    all: [ReaderSlot; SLOTS],
    /// Cached contexts of the thread of each slot. Not in the slots, as a search reads all of them.
    remembered: [Remembered; SLOTS],
    /// The last walk of the stack of the thread of each slot. Apart, as most threads have none.
    walks: [LastWalk; SLOTS],
    /// Whole stacks of the threads of the first slots.
    stacks: [StackMemo; STACK_SLOTS],
}

/// A read-side critical section of the calling thread, until it is dropped.
#[derive(Debug)]
pub(super) struct ReadSideGuard<'a> {
    reader: &'a ReaderSlot,
    /// What `inside` was. In a signal handler, it has the bits of the interrupted writer.
    before: u32,
}

impl Readers {
    /// Announces that the calling thread is in rings of a trace slot; none if it has no slot here.
    ///
    /// The caller may look at the channel only afterwards.
    #[inline(always)]
    pub(super) fn enter(&self, slot: u32) -> Option<ReadSideGuard<'_>> {
        let known = thread::with(|thread| self.known(thread));
        let reader = known.map(|(_, reader)| reader).or_else(|| self.find())?;
        let before = reader.inside.load(Ordering::Relaxed);
        reader.inside.store(before | 1 << slot, Ordering::Relaxed);
        // The compiler moves no later access before the store. Pairs with the closing thread's
        // `membarrier`, which keeps the processor from doing so, see above.
        compiler_fence(Ordering::SeqCst);
        Some(ReadSideGuard { reader, before })
    }

    /// Whether no thread is in rings of a trace slot, other than in a restartable sequence.
    ///
    /// The caller must have executed the barrier before.
    pub(super) fn no_readers(&self, slot: u32) -> bool {
        let is_inside = |reader: &ReaderSlot| {
            // Acquire: pairs with the store in `drop`. The thread's stores to the rings happened
            // before what the caller does next.
            let inside = reader.inside.load(Ordering::Acquire);
            inside & 1 << slot != 0
                // A thread that ended inside, as by `pthread_exit` in a signal handler, stores
                // nothing any more.
                && os::thread::may_exist(os::process::id(), reader.thread.load(Ordering::Relaxed))
        };
        !self.all.iter().any(is_inside)
    }

    /// Cached contexts of the calling thread, for which it takes a slot if it has none.
    pub(crate) fn cache(&self) -> Option<&Remembered> {
        self.caches().map(|(remembered, _)| remembered)
    }

    /// Cached contexts and walks of the calling thread, for which it takes a slot if it has none.
    #[inline(always)]
    pub(crate) fn caches(&self) -> Option<(&Remembered, Walks<'_>)> {
        self.known_caches().or_else(|| {
            self.find()?;
            self.known_caches()
        })
    }

    /// Cached contexts and walks of the calling thread, if it has a slot.
    #[inline(always)]
    pub(super) fn known_caches(&self) -> Option<(&Remembered, Walks<'_>)> {
        let (index, _) = thread::with(|thread| self.known(thread))?;
        let walks = Walks {
            last: self.walks.get(index)?,
            stacks: self.stacks.get(index),
        };
        Some((self.remembered.get(index)?, walks))
    }

    /// The calling thread's slot, with its index, if it has one.
    #[inline(always)]
    fn known(&self, thread: &Thread) -> Option<(usize, &ReaderSlot)> {
        let index = index(thread)?;
        let reader = self.all.get(index)?;
        // A child of `fork` finds all slots free, but its thread still has the index of its
        // parent's.
        let block = std::ptr::from_ref(thread).addr();
        (reader.block.load(Ordering::Relaxed) == block).then_some((index, reader))
    }

    /// Takes a slot for the calling thread.
    #[cold]
    #[inline(never)]
    fn find(&self) -> Option<&ReaderSlot> {
        if thread::is_lent() {
            // The block, which would remember the slot, is the parent's.
            return None;
        }
        let id = os::thread::id();
        let take = |from: u32, reader: &ReaderSlot| {
            let taken = &reader.thread;
            // Acquire: pairs with the end of the thread that had the slot before.
            taken
                .compare_exchange(from, id, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        let own_block = thread::with(|thread| std::ptr::from_ref(thread).addr());
        // A slot with this thread's id and block belonged to a thread that ended. With another
        // block, it may be that of another copy of this crate in the same thread, which may be
        // inside.
        let is_own = |reader: &ReaderSlot| {
            reader.thread.load(Ordering::Relaxed) == id
                && reader.block.load(Ordering::Relaxed) == own_block
        };
        let is_gone = |reader: &ReaderSlot| {
            let owner = reader.thread.load(Ordering::Relaxed);
            !os::thread::may_exist(os::process::id(), owner) && take(owner, reader)
        };
        let index = (self.all.iter().position(is_own))
            .or_else(|| self.all.iter().position(|reader| take(0, reader)))
            .or_else(|| self.all.iter().position(is_gone))?;
        let reader = &self.all[index];
        self.remembered[index].forget();
        self.walks[index].forget();
        if let Some(stacks) = self.stacks.get(index) {
            stacks.forget();
        }
        thread::with(|thread| {
            // This thread had no slot, so it is inside nothing: the bits are of a thread that
            // ended.
            reader.inside.store(0, Ordering::Relaxed);
            let block = std::ptr::from_ref(thread).addr();
            reader.block.store(block, Ordering::Relaxed);
            // Release: a signal handler that loads the index sees the stores above.
            thread
                .reader_slot
                .store(index as u16 + 1, Ordering::Release);
        });
        Some(reader)
    }
}

/// Index of the slot that a thread took last, in this process or in the one that forked it.
#[inline(always)]
fn index(thread: &Thread) -> Option<usize> {
    // Relaxed: only the thread itself and its signal handlers store it.
    let index = thread.reader_slot.load(Ordering::Relaxed).checked_sub(1)?;
    Some(index as usize)
}

impl Drop for ReadSideGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let block = thread::with(|thread| std::ptr::from_ref(thread).addr());
        // They differ in a child that a signal handler forked while this thread was inside: there,
        // all slots are free, or belong to other threads by now.
        if self.reader.block.load(Ordering::Relaxed) == block {
            // Release: pairs with the load in `no_readers`.
            self.reader.inside.store(self.before, Ordering::Release);
        }
        // The caller looks afterwards whether the channel was closed, see `crate::event`. Pairs
        // with the closing thread's barrier: if that thread still saw this one inside, this one
        // sees the close.
        compiler_fence(Ordering::SeqCst);
    }
}
