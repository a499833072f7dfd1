//! Ownership of rings by threads, in channels with a ring for each thread.
//!
//! A thread takes a ring with its first record and keeps it: no other thread writes there as long
//! as it runs. If no ring is free, it takes one whose owner has ended. It goes on in a new
//! sub-buffer, whose header names it; records of the former owner stay for the reader. A reader
//! that knows of owners, as the fallback's does, frees their rings sooner, when it has read all.
//!
//! The last quarter of the rings is shared by all threads that found no ring. So a ring is either
//! exclusive or shared, and never changes between the two.
//!
//! An owner is a thread id in the process's own PID namespace. Ids are used again:
//! - By a thread of another process: the check whether the owner exists names the process, too.
//! - By a thread of this process: it becomes the owner when it writes, and no other thread takes
//!   the ring meanwhile.
//!
//! Other processes may share this one's memory, as children of `vfork` and some of `clone` do.
//! Their threads own no ring: this process could not find out whether they have ended.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::super::Dropped;
use super::super::channel::Channel;
use super::super::thread;
use super::local_atomic::LocalAtomic;
use super::{Control, Ring, protocol};
use crate::os;

/// The ring that the calling thread writes to, and whether it is the only writer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingOwnership {
    /// No other thread writes to the ring with this index.
    Exclusive(u32),
    /// Other threads may write to the ring with this index.
    Shared(u32),
}

/// Bit of the word in the thread block: the ring is shared.
const SHARED: u32 = 1 << 31;

/// Bit of `owner`: the thread with this id is about to take the ring from a thread that has ended.
/// No thread id has this bit.
const TAKING: u32 = 1 << 31;

const _: () = assert!(super::super::ring_index::MAX_RINGS < SHARED);

/// Number of rings that threads can own: the first ones of a channel.
fn takeable(rings: u32) -> u32 {
    rings - rings.div_ceil(4)
}

/// The calling thread's ring, if it has written to the channel before.
#[inline(always)]
pub(super) fn known(channel: &Channel) -> Option<RingOwnership> {
    let serial = channel.serial();
    if serial == 0 {
        return Some(RingOwnership::Shared(0));
    }
    // Relaxed: only the thread itself stores it.
    let word = thread::with(|thread| remembered(thread, serial).load(Ordering::Relaxed));
    let (of, ring) = ((word >> 32) as u32, word as u32);
    (of == serial).then_some(if ring & SHARED == 0 {
        RingOwnership::Exclusive(ring)
    } else {
        RingOwnership::Shared(ring & !SHARED)
    })
}

/// The calling thread's own ring, if it has written to the channel before, and the event path knows
/// of its ring.
#[inline(always)]
pub(super) fn own(channel: &Channel) -> Option<u32> {
    // First: only what is loaded later is that of an open channel.
    let rings = channel.own_rings();
    let serial = channel.serial();
    // Relaxed: only the thread itself stores it.
    let word = thread::with(|thread| remembered(thread, serial).load(Ordering::Relaxed));
    // A shared ring has a bit that makes its index one of no ring.
    let index = word as u32;
    ((word >> 32) as u32 == serial && index < rings).then_some(index)
}

/// The word in which a thread remembers its ring of a channel. Channels that are open at the same
/// time have successive serial numbers, so a few of them do not evict each other.
#[inline(always)]
fn remembered(thread: &thread::Thread, serial: u32) -> &AtomicU64 {
    &thread.rings[serial as usize % thread.rings.len()]
}

/// Remembers the calling thread's ring.
fn remember(serial: u32, ownership: RingOwnership) {
    let ring = match ownership {
        RingOwnership::Exclusive(index) => index,
        RingOwnership::Shared(index) => index | SHARED,
    };
    let word = u64::from(serial) << 32 | u64::from(ring);
    thread::with(|thread| remembered(thread, serial).store(word, Ordering::Relaxed));
}

/// The calling thread's ring, which it takes now if it has none.
pub(super) fn find(channel: &Channel) -> Result<RingOwnership, Dropped> {
    known(channel).map_or_else(|| take(channel), Ok)
}

/// Takes a ring for the calling thread, or chooses a shared one.
fn take(channel: &Channel) -> Result<RingOwnership, Dropped> {
    let serial = channel.serial();
    let thread = os::thread::id();
    let rings = channel.rings();
    if rings == 0 {
        return Err(Dropped::Closed);
    }
    let first = takeable(rings);
    let shared = RingOwnership::Shared(first + thread % (rings - first));
    let process = channel.process();
    if thread::is_lent() || os::process::id() != process {
        // Not remembered: the block may be that of a thread of the process.
        return Ok(shared);
    }
    let own = |index| {
        remember(serial, RingOwnership::Exclusive(index));
        Ok(RingOwnership::Exclusive(index))
    };
    let mut full = false;
    for index in 0..first {
        let ring = Ring::<LocalAtomic, true>::new(channel, index).ok_or(Dropped::Closed)?;
        let owner = &ring.control.owner;
        // Acquire: pairs with the store of the reader or writer that freed the ring.
        let taken = owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed);
        match taken {
            Ok(_) => {
                read_clock_after_former_owner();
                ring.prefault();
            }
            // The thread owns it already if a signal handler took it, or if the thread wrote to
            // many other channels since.
            Err(owner) if owner == thread => {}
            Err(_) => continue,
        }
        if protocol::begin_own_subbuf(ring).is_ok() {
            return own(index);
        }
        full = true;
        if taken.is_ok() {
            // Freed again, as the current sub-buffer names another thread. Release: pairs with the
            // acquire above.
            owner.store(0, Ordering::Release);
        }
    }
    if full {
        // There may be room at the next record.
        return Ok(shared);
    }
    // Threads start at different rings, as taking one wastes the rest of its sub-buffer.
    for index in (0..first).map(|n| (thread + n) % first) {
        let ring = Ring::<LocalAtomic, true>::new(channel, index).ok_or(Dropped::Closed)?;
        let Some(before) = take_over(ring.control, process, thread) else {
            continue;
        };
        read_clock_after_former_owner();
        if protocol::begin_own_subbuf(ring).is_ok() {
            return own(index);
        }
        // It is full of unread records: the former owner gets it back.
        let owner = &ring.control.owner;
        let _ = owner.compare_exchange(thread, before, Ordering::Release, Ordering::Relaxed);
    }
    // For good: a search for threads that have ended takes a system call for each ring.
    remember(serial, shared);
    Ok(shared)
}

/// Waits until the load that found the ring free, or its owner gone, is over: the times of the new
/// owner are later than those of the former one. Afterwards they are in order, as one thread's.
fn read_clock_after_former_owner() {
    super::after_loads();
}

/// Takes a ring from a thread that has ended, and returns that thread's id.
fn take_over(control: &Control, process: u32, thread: u32) -> Option<u32> {
    // A thread that died while it took a ring left the bit in it.
    let is_gone = |owner: u32| !os::thread::may_exist(process, owner & !TAKING);
    let owner = &control.owner;
    let before = owner.load(Ordering::Relaxed);
    // A ring that was freed meanwhile is for the next thread that comes.
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
    // Since that check, the ring may have been freed, and taken by a new thread with the same id.
    // From now on no other thread can take it, nor a signal handler of this thread, as the bit is
    // set.
    if !is_gone(before) {
        let taking = thread | TAKING;
        let _ = owner.compare_exchange(taking, before, Ordering::Release, Ordering::Relaxed);
        return None;
    }
    // Pairs with the barrier that the kernel executes between a thread's last access to its memory
    // and its end: its stores are visible from here on.
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
