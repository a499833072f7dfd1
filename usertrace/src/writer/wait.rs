//! How a writer waits for a reader to make room (D7).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::channel::Control;
use super::doorbell::Doorbell;
use super::thread;

/// How long a writer sleeps before it looks again whether there is a reader at all.
///
/// Who waits is woken at once, by the reader or, if that dies, by nobody.
const PATIENCE: Duration = Duration::from_millis(50);

/// Sleeps until a ring's `consumed` is no longer what it was, or for a while. False: this thread must not wait, as
/// nobody would make room.
///
/// Async-signal-safe; leaves `errno` alone.
#[cold]
pub(super) fn wait(control: &Control, doorbell: Option<&Doorbell>, consumed: u64) -> bool {
    // Without a doorbell, the reader is one that does not know of writers that wait.
    let Some(doorbell) = doorbell else {
        return false;
    };
    // In a signal handler that came in the middle of a long record, the reader might wait for this very record.
    if doorbell.is_deserted() || thread::with(|thread| thread.inside.load(Ordering::Relaxed) != 0) {
        return false;
    }
    // There may be less than a whole sub-buffer left to read: that nobody told of yet.
    doorbell.ring();
    // SeqCst, as is the reader's store of `consumed`, and its load of `waiters` after that: either the reader sees that
    // somebody waits, or this sees that it has read.
    control.waiters.fetch_add(1, Ordering::SeqCst);
    if control.consumed.load(Ordering::SeqCst) == consumed {
        sleep(control.consumed_low(), consumed as u32);
    }
    control.waiters.fetch_sub(1, Ordering::Relaxed);
    true
}

/// Sleeps on a futex that processes share, if it has a value.
fn sleep(futex: &AtomicU32, value: u32) {
    let patience = libc::timespec {
        tv_sec: 0,
        tv_nsec: PATIENCE.subsec_nanos().into(),
    };
    // SAFETY: the kernel reads the futex and the time, and writes nothing.
    unsafe {
        syscalls::raw::syscall4(
            syscalls::Sysno::futex as usize,
            futex.as_ptr() as usize,
            libc::FUTEX_WAIT as usize,
            value as usize,
            &raw const patience as usize,
        );
    }
}
