//! Which ring of a channel is a thread's.
//!
//! A thread takes a ring with its first record, and keeps it. The reader gives it back when the thread is gone and all
//! of it was read. Rings are more than one thread's only if there are more threads than rings.

use std::sync::atomic::Ordering;

use super::super::Dropped;
use super::super::channel::Channel;
use super::super::thread;
use super::{Ring, protocol};

/// The ring that the calling thread has in the channel with a serial number, if it took one before.
#[inline(always)]
pub(super) fn remembered(serial: u32) -> Option<u32> {
    // Relaxed: it is the thread's own.
    let word = thread::with(|thread| thread.ring.load(Ordering::Relaxed));
    ((word >> 32) as u32 == serial).then_some(word as u32)
}

fn remember(serial: u32, index: u32) {
    let word = u64::from(serial) << 32 | u64::from(index);
    thread::with(|thread| thread.ring.store(word, Ordering::Relaxed));
}

/// Finds a ring for the calling thread.
pub(super) fn take(channel: &Channel) -> Result<u32, Dropped> {
    let serial = channel.serial();
    let thread = gettid();
    let rings = channel.rings();
    if rings == 0 {
        return Err(Dropped::Closed);
    }
    let mut full = false;
    for index in 0..rings {
        let ring = Ring::new(channel, index).ok_or(Dropped::Closed)?;
        // Acquire: pairs with the store of whoever gave the ring back. It is the thread's own already if a signal
        // handler came first, or if the thread wrote to another channel in between.
        match ring
            .control
            .owner
            .compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => {}
            Err(owner) if owner == thread => {}
            Err(_) => continue,
        }
        if protocol::begin_anew(ring).is_ok() {
            remember(serial, index);
            return Ok(index);
        }
        // Given back, as its records would go by the name of the thread before. Release: pairs with the above.
        ring.control.owner.store(0, Ordering::Release);
        full = true;
    }
    let index = thread % rings;
    if full {
        // Not remembered: next time there may be room in one.
        let ring = Ring::new(channel, index).ok_or(Dropped::Closed)?;
        return Err(protocol::lose(ring).into());
    }
    remember(serial, index);
    Ok(index)
}

/// The calling thread's number. Leaves `errno` alone.
fn gettid() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { syscalls::raw::syscall0(syscalls::Sysno::gettid as usize) as u32 }
}
