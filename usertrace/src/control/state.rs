//! What a process's control channel consists of, in memory that all copies of this crate share.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use usertrace_control::protocol;
use usertrace_control::socket::Descriptor;
#[cfg(feature = "fallback")]
use usertrace_sys::filter::Filter;
use usertrace_sys::limits::SLOTS;

use crate::runtime::coalescing_lock::CoalescingLock;

/// Controllers at a time.
pub(super) const CLIENTS: usize = 8;

/// The channel of a process, once for all copies of this crate. All zeros: there is none.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    /// 0: off; [`THREAD`](super::THREAD), a signal's number, or [`CLOSING`](super::CLOSING).
    pub(super) mode: AtomicI32,
    /// The process whose sockets these are.
    pub(super) process: AtomicU32,
    /// How often it was opened.
    pub(super) openings: AtomicU32,
    pub(super) listener: Descriptor,
    pub(super) controllers: [Controller; CLIENTS],
    /// How many of them want reports.
    pub(super) watchers: AtomicU32,
    /// When it was last told that a ring of each slot is full, in milliseconds.
    pub(super) told_full: [AtomicU64; SLOTS],
    /// One at a time serves; who comes meanwhile has it done again.
    pub(super) serving: CoalescingLock,
    /// The thread that serves.
    pub(super) server: AtomicU32,
    /// Of who serves.
    pub(super) room: UnsafeCell<Room>,
}

// SAFETY: all is atomic but the room, which only who serves may get.
unsafe impl Sync for Control {}

/// One controller.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Controller {
    pub(super) socket: Descriptor,
    /// Not 0: it wants reports.
    pub(super) watches: AtomicU32,
    /// Reports that there was no room for.
    pub(super) missed: AtomicU32,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Room {
    pub(super) request: [u8; protocol::REQUEST_MAX],
    pub(super) answer: [u8; protocol::ANSWER_MAX],
    #[cfg(feature = "fallback")]
    pub(super) filter: Filter,
}

impl Controller {
    pub(super) fn take(&self, socket: i32) {
        self.watches.store(0, Ordering::Relaxed);
        self.missed.store(0, Ordering::Relaxed);
        self.socket.set(socket);
    }

    pub(super) fn close(&self) {
        self.watches.store(0, Ordering::Relaxed);
        self.socket.close();
    }
}
