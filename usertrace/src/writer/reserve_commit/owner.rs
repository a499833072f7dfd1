//! Which ring of a channel is a thread's.
//!
//! A thread takes a ring with its first record, and keeps it: nobody else writes there as long as
//! it runs. When none is free, a thread takes one whose owner is gone, and goes on in a new
//! sub-buffer, which names it; what the one before has written stays for the reader. Where the
//! reader knows of owners, as the fallback's does, it gives their rings back sooner, when all of it
//! was read.
//!
//! The last quarter of the rings is not for taking, but for all threads that find none, several to
//! a ring. So a ring is written by one thread or by many, always the same.
//!
//! An owner is a thread's number, as its process's own PID namespace has it. Of a number that is
//! used again:
//! - By a thread of another process: the process is named, too, in the question whether it is
//!   there.
//! - By a thread of this one: the ring is its own then, if it comes to write, and not taken by
//!   others in any case.
//!
//! Other processes may share this one's memory, as children of `vfork` and some of `clone` do.
//! Their threads have no ring of their own: this process could not tell whether they are gone.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::super::Dropped;
use super::super::channel::Channel;
use super::super::thread;
use super::local_atomic::LocalAtomic;
use super::{Control, Ring, protocol};
use crate::os;

/// A ring for the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingOwnership {
    /// Nobody else writes there.
    Exclusive(u32),
    /// Others may.
    Shared(u32),
}

/// In the word that a thread remembers: the ring is a common one.
const SHARED: u32 = 1 << 31;

/// In `owner`: the thread of this number is about to take the ring from one that is gone. No number
/// has this bit.
const TAKING: u32 = 1 << 31;

const _: () = assert!(super::super::ring_index::MAX_RINGS < SHARED);

/// How many of a channel's rings a thread can have for itself: they are the first ones.
fn takeable(rings: u32) -> u32 {
    rings - rings.div_ceil(4)
}

/// The calling thread's place, if it has written to the channel before.
#[inline(always)]
pub(super) fn known(channel: &Channel) -> Option<RingOwnership> {
    let serial = channel.serial();
    if serial == 0 {
        return Some(RingOwnership::Shared(0));
    }
    // Relaxed: it is the thread's own.
    let word = thread::with(|thread| remembered(thread, serial).load(Ordering::Relaxed));
    let (of, ring) = ((word >> 32) as u32, word as u32);
    (of == serial).then_some(if ring & SHARED == 0 {
        RingOwnership::Exclusive(ring)
    } else {
        RingOwnership::Shared(ring & !SHARED)
    })
}

/// Where a thread remembers its place in a channel. Channels that are open at the same time have
/// successive numbers, so a few of them do not push each other out.
#[inline(always)]
fn remembered(thread: &thread::Thread, serial: u32) -> &AtomicU64 {
    &thread.rings[serial as usize % thread.rings.len()]
}

fn remember(serial: u32, place: RingOwnership) {
    let ring = match place {
        RingOwnership::Exclusive(index) => index,
        RingOwnership::Shared(index) => index | SHARED,
    };
    let word = u64::from(serial) << 32 | u64::from(ring);
    thread::with(|thread| remembered(thread, serial).store(word, Ordering::Relaxed));
}

/// The calling thread's place.
pub(super) fn find(channel: &Channel) -> Result<RingOwnership, Dropped> {
    known(channel).map_or_else(|| take(channel), Ok)
}

/// Finds a place for the calling thread.
fn take(channel: &Channel) -> Result<RingOwnership, Dropped> {
    let serial = channel.serial();
    let thread = os::thread::id();
    let rings = channel.rings();
    if rings == 0 {
        return Err(Dropped::Closed);
    }
    let first = takeable(rings);
    let common = RingOwnership::Shared(first + thread % (rings - first));
    let process = channel.process();
    if thread::is_lent() || os::process::id() != process {
        // Not remembered: the memory in which that is may be that of a thread of the process.
        return Ok(common);
    }
    let own = |index| {
        remember(serial, RingOwnership::Exclusive(index));
        Ok(RingOwnership::Exclusive(index))
    };
    let mut full = false;
    for index in 0..first {
        let ring = Ring::<LocalAtomic, true>::new(channel, index).ok_or(Dropped::Closed)?;
        let owner = &ring.control.owner;
        // Acquire: pairs with the store of whoever gave the ring back.
        let taken = owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed);
        match taken {
            Ok(_) => ring.prefault(),
            // It is the thread's own already if a signal handler came first, or comes now; or if
            // the thread wrote to many other channels in between.
            Err(owner) if owner == thread => {}
            Err(_) => continue,
        }
        if protocol::begin_anew(ring).is_ok() {
            return own(index);
        }
        full = true;
        if taken.is_ok() {
            // Given back, as its records would go by the name of the thread before. Release: pairs
            // with the above.
            owner.store(0, Ordering::Release);
        }
    }
    if full {
        // There may be room next time.
        return Ok(common);
    }
    // Not all from the same one on, as each ring loses the rest of a sub-buffer by it.
    for index in (0..first).map(|n| (thread + n) % first) {
        let ring = Ring::<LocalAtomic, true>::new(channel, index).ok_or(Dropped::Closed)?;
        let Some(before) = take_over(ring.control, process, thread) else {
            continue;
        };
        if protocol::begin_anew(ring).is_ok() {
            return own(index);
        }
        // It is full of what was not read: that of the thread before, as before.
        let owner = &ring.control.owner;
        let _ = owner.compare_exchange(thread, before, Ordering::Release, Ordering::Relaxed);
    }
    // For good: to look for threads that are gone takes a system call for each ring.
    remember(serial, common);
    Ok(common)
}

/// Takes a ring from a thread that is gone, and says which that was.
fn take_over(control: &Control, process: u32, thread: u32) -> Option<u32> {
    // Who died while it was taking one left that in it.
    let is_gone = |owner: u32| !os::thread::may_exist(process, owner & !TAKING);
    let owner = &control.owner;
    let before = owner.load(Ordering::Relaxed);
    // A ring that was given back meanwhile is for who comes next.
    if before == 0 || !is_gone(before) {
        return None;
    }
    owner
        .compare_exchange(
            before,
            thread | TAKING,
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .ok()?;
    // Since that look, the ring may have been given back, and taken by a new thread of the same
    // number. Now nobody else can take it. (Nor did a signal handler of this thread, for which it
    // is not its own as yet.)
    if !is_gone(before) {
        let taking = thread | TAKING;
        let _ = owner.compare_exchange(taking, before, Ordering::Release, Ordering::Relaxed);
        return None;
    }
    // Pairs with the barrier that the kernel has between the last access of a thread to its memory
    // and its end: what it stored is seen from here on.
    fence(Ordering::Acquire);
    owner
        .compare_exchange(
            thread | TAKING,
            thread,
            Ordering::Relaxed,
            Ordering::Relaxed,
        )
        .ok()
        .map(|_| before)
}
