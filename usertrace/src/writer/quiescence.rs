//! Who is in rings of the shared protocol: what a thread says before it looks for its ring, so that
//! who closes a channel knows whom to wait for (A9). (Restartable sequences need none of this: they
//! are restarted.)
//!
//! A thread says it by plain stores, which cost an event next to nothing. Who closes a channel
//! makes up for that: after the close, and before it looks here, it has the kernel put a full
//! barrier into every running thread of the process (`membarrier`). Before its barrier a thread has
//! said that it is inside, or else it sees after it that the channel is closed. Userspace RCU and
//! hazard pointers divide the work so, too.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};

use super::remembered::Remembered;
use super::thread::{self, Thread};
use crate::os;

/// Threads at a time. More than these count themselves in the channel, by atomic instructions.
const PLACES: usize = 1024;

/// One thread's place.
#[derive(Debug)]
#[repr(C)]
struct Visitor {
    /// Address of the thread's block, by which it knows that the place is its own.
    block: AtomicUsize,
    /// The thread's number; 0: the place is free.
    thread: AtomicU32,
    /// A bit for each slot whose rings it is in.
    inside: AtomicU32,
}

/// The places of a process's threads. All zeros is a value: they are free.
///
/// Those of threads that are gone stay until there is no other one for a new thread.
#[derive(Debug)]
#[repr(C)]
pub struct Readers {
    all: [Visitor; PLACES],
    /// What the thread of each place remembers of itself. Apart from the places, which are all read
    /// to find one.
    remembered: [Remembered; PLACES],
}

/// The calling thread is inside, until this is dropped.
#[derive(Debug)]
pub(super) struct ReadSideGuard<'a> {
    visitor: &'a Visitor,
    /// What a signal handler finds of the writer that it came upon.
    before: u32,
}

impl Readers {
    /// Says that the calling thread is in rings of a slot; nothing if it has no place. Before it is
    /// said, nothing may be looked up in the channel.
    #[inline(always)]
    pub(super) fn mark(&self, slot: u32) -> Option<ReadSideGuard<'_>> {
        let visitor = thread::with(|thread| self.known(thread)).or_else(|| self.find())?;
        let before = visitor.inside.load(Ordering::Relaxed);
        visitor.inside.store(before | 1 << slot, Ordering::Relaxed);
        // Pairs with the barrier of who closes the channel, see above: what follows is not done
        // before this.
        compiler_fence(Ordering::SeqCst);
        Some(ReadSideGuard { visitor, before })
    }

    /// Nobody is in rings of a slot, other than in a restartable sequence. To be asked after the
    /// barrier.
    pub(super) fn are_gone(&self, slot: u32) -> bool {
        let is_inside = |visitor: &Visitor| {
            // Acquire: pairs with the store of who left, whose stores to the rings come before what
            // follows here.
            let inside = visitor.inside.load(Ordering::Acquire);
            inside & 1 << slot != 0
                // Of a thread that ended there, as by `pthread_exit` in a signal handler, nothing
                // comes any more.
                && os::thread::may_exist(os::process::id(), visitor.thread.load(Ordering::Relaxed))
        };
        !self.all.iter().any(is_inside)
    }

    /// What the calling thread remembers of itself, if it has a place.
    pub(super) fn remembered(&self) -> Option<&Remembered> {
        let place = thread::with(|thread| self.known(thread).and(place(thread)))?;
        self.remembered.get(place)
    }

    /// The calling thread's place, if it has one.
    #[inline(always)]
    fn known(&self, thread: &Thread) -> Option<&Visitor> {
        let visitor = self.all.get(place(thread)?)?;
        // A child of `fork` finds all of them free, but its thread remembers that of its parent's.
        let block = std::ptr::from_ref(thread).addr();
        (visitor.block.load(Ordering::Relaxed) == block).then_some(visitor)
    }

    /// Finds a place for the calling thread.
    #[cold]
    #[inline(never)]
    fn find(&self) -> Option<&Visitor> {
        if thread::is_lent() {
            // What it remembers would be the parent's.
            return None;
        }
        let number = os::thread::id();
        let take = |from: u32, visitor: &Visitor| {
            let taken = &visitor.thread;
            // Acquire: pairs with the end of the thread before, if there was one.
            taken
                .compare_exchange(from, number, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        // One that has the thread's number is that of a thread that is gone, or was found just now
        // by who was interrupted.
        let is_own = |visitor: &Visitor| visitor.thread.load(Ordering::Relaxed) == number;
        let is_gone = |visitor: &Visitor| {
            let owner = visitor.thread.load(Ordering::Relaxed);
            !os::thread::may_exist(os::process::id(), owner) && take(owner, visitor)
        };
        let place = (self.all.iter().position(is_own))
            .or_else(|| self.all.iter().position(|visitor| take(0, visitor)))
            .or_else(|| self.all.iter().position(is_gone))?;
        let visitor = &self.all[place];
        self.remembered[place].forget();
        thread::with(|thread| {
            // As it has no place yet, the thread is nowhere inside: what is said is of one that is
            // gone.
            visitor.inside.store(0, Ordering::Relaxed);
            let block = std::ptr::from_ref(thread).addr();
            visitor.block.store(block, Ordering::Relaxed);
            // Release: a signal handler that finds the place finds what is above.
            thread.visitor.store(place as u32 + 1, Ordering::Release);
        });
        Some(visitor)
    }
}

/// The number of the place that a thread took last, in whatever process.
#[inline(always)]
fn place(thread: &Thread) -> Option<usize> {
    // Relaxed: what is the thread's own, only its signal handlers change, too.
    let place = thread.visitor.load(Ordering::Relaxed).checked_sub(1)?;
    Some(place as usize)
}

impl Drop for ReadSideGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let block = thread::with(|thread| std::ptr::from_ref(thread).addr());
        // Not so in the child of a `fork` from a handler that came while this thread was inside:
        // all are free there, or others' by now.
        if self.visitor.block.load(Ordering::Relaxed) == block {
            // Release: pairs with the load in `are_gone`.
            self.visitor.inside.store(self.before, Ordering::Release);
        }
        // Whether the channel was closed is looked at after this, see `crate::event`. Pairs with
        // the barrier: who closed it and still found this thread inside is seen then.
        compiler_fence(Ordering::SeqCst);
    }
}
