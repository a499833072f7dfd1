//! The state of a process's control channel, in memory that all copies of this crate share.

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

/// The control channel of a process, which all copies of this crate share. All zeros: the channel
/// is off.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    /// 0: off; [`THREAD`](super::THREAD), a signal's number, or [`CLOSING`](super::CLOSING).
    pub(super) mode: AtomicI32,
    /// The process that owns the sockets.
    pub(super) process: AtomicU32,
    /// Number of times that the channel was opened.
    pub(super) openings: AtomicU32,
    pub(super) listener: Descriptor,
    pub(super) controllers: [Controller; CLIENTS],
    /// Number of controllers that want reports.
    pub(super) watchers: AtomicU32,
    /// Time of the last report of a full ring for each slot, in milliseconds.
    pub(super) last_full_report: [AtomicU64; SLOTS],
    /// Serialises serving; a request that comes meanwhile makes the holder serve again.
    pub(super) serving: CoalescingLock,
    /// The thread that serves.
    pub(super) server: AtomicU32,
    /// Buffers of the serving thread.
    pub(super) buffers: UnsafeCell<ServerBuffers>,
}

// SAFETY: all fields are atomic but `buffers`, which only the holder of `serving` uses.
unsafe impl Sync for Control {}

/// The connection of one controller.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Controller {
    pub(super) socket: Descriptor,
    /// Not 0: it wants reports.
    pub(super) watches: AtomicU32,
    /// Number of reports that its socket had no room for.
    pub(super) missed: AtomicU32,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct ServerBuffers {
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
