//! Which ring of a channel is a thread's.
//!
//! A thread takes a ring with its first record, and keeps it. The reader gives it back when the thread is gone and all
//! of it was read. Nobody else writes there meanwhile.
//!
//! The last quarter of the rings is not for taking, but for all threads that find none, several to a ring. So a ring is
//! written by one thread or by many, always the same.

use std::sync::atomic::Ordering;

use super::super::Dropped;
use super::super::channel::Channel;
use super::super::thread;
use super::own::Own;
use super::{Ring, protocol};

/// A ring for the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nobody else writes there.
    Own(u32),
    /// Others may.
    Common(u32),
}

/// In the word that a thread remembers: the ring is a common one.
const COMMON: u32 = 1 << 31;

const _: () = assert!(super::super::channel::MAX_RINGS < COMMON);

/// How many of a channel's rings a thread can have for itself: they are the first ones.
fn takeable(rings: u32) -> u32 {
    rings - rings.div_ceil(4)
}

/// The calling thread's place, if it has written to the channel before.
#[inline(always)]
pub(super) fn known(channel: &Channel) -> Option<Place> {
    let serial = channel.serial();
    if serial == 0 {
        return Some(Place::Common(0));
    }
    // Relaxed: it is the thread's own.
    let word = thread::with(|thread| thread.ring.load(Ordering::Relaxed));
    let (of, ring) = ((word >> 32) as u32, word as u32);
    (of == serial).then_some(if ring & COMMON == 0 {
        Place::Own(ring)
    } else {
        Place::Common(ring & !COMMON)
    })
}

fn remember(serial: u32, place: Place) {
    let ring = match place {
        Place::Own(index) => index,
        Place::Common(index) => index | COMMON,
    };
    let word = u64::from(serial) << 32 | u64::from(ring);
    thread::with(|thread| thread.ring.store(word, Ordering::Relaxed));
}

/// The calling thread's place.
pub(super) fn find(channel: &Channel) -> Result<Place, Dropped> {
    known(channel).map_or_else(|| take(channel), Ok)
}

/// Finds a place for the calling thread.
fn take(channel: &Channel) -> Result<Place, Dropped> {
    let serial = channel.serial();
    let thread = gettid();
    let rings = channel.rings();
    if rings == 0 {
        return Err(Dropped::Closed);
    }
    let first = takeable(rings);
    let common = Place::Common(first + thread % (rings - first));
    if thread::is_lent() {
        // What a `vfork` child took would be its parent's, but go by the name of the child, and be given to another thread
        // when that is gone. Not remembered, as its parent would.
        return Ok(common);
    }
    let mut full = false;
    for index in 0..first {
        let ring = Ring::<Own>::new(channel, index).ok_or(Dropped::Closed)?;
        // Acquire: pairs with the store of whoever gave the ring back. It is the thread's own already if a signal
        // handler came first, or if the thread wrote to another channel in between.
        match ring
            .control
            .owner
            .compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => ring.prefault(),
            Err(owner) if owner == thread => {}
            Err(_) => continue,
        }
        if protocol::begin_anew(ring).is_ok() {
            remember(serial, Place::Own(index));
            return Ok(Place::Own(index));
        }
        // Given back, as its records would go by the name of the thread before. Release: pairs with the above.
        ring.control.owner.store(0, Ordering::Release);
        full = true;
    }
    if !full {
        // Otherwise there may be room next time.
        remember(serial, common);
    }
    Ok(common)
}

/// The calling thread's number. Leaves `errno` alone.
fn gettid() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { syscalls::raw::syscall0(syscalls::Sysno::gettid as usize) as u32 }
}
