//! The interface of a back end: the kernel's system calls, or a replacement.

use std::ptr::NonNull;

use usertrace_sys::uapi::LttTracebuf;
use usertrace_sys::{Calls, Errno, Update};

use crate::writer::{Prefault, ReaderWakeup};

/// The three system calls of the kernel, or a replacement: the fallback, or a test.
///
/// # Safety
/// [`alloc_tracebuf`](Self::alloc_tracebuf) must return areas as the header `linux/ltt.h` describes
/// them, which stay mapped until the process ends. A child of `fork` must get areas of its own. The
/// functions must be async-signal-safe, and preserve `errno`.
pub unsafe trait Kernel: Sync {
    /// Allocates the areas; see [`Calls::alloc_tracebuf`].
    ///
    /// # Errors
    /// Those of that call.
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno>;

    /// Gets the next buffer, or the state of a trace; see [`Calls::update`].
    ///
    /// # Errors
    /// Those of that call.
    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno>;

    /// Wakes the reader of a buffer; see [`Calls::switch`].
    ///
    /// # Errors
    /// Those of that call.
    fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno>;

    /// Fires a trigger of the trace that a buffer belongs to; see [`Calls::fire`].
    ///
    /// # Errors
    /// Those of that call. `ENOSYS`: the back end has no triggers.
    fn fire(&self, _buffer: NonNull<u8>, _trigger: u8) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// True if traces may be removed while the process runs.
    fn removes_traces(&self) -> bool {
        true
    }

    /// True if the back end has per-CPU rings, which need restartable sequences.
    fn needs_rseq(&self) -> bool {
        true
    }

    /// The word by which writers wake the reader of a full sub-buffer. NULL: there is none, and
    /// writers that wait for a reader call [`switch`](Self::switch). Called after
    /// [`alloc_tracebuf`](Self::alloc_tracebuf).
    fn reader_wakeup(&self) -> *const ReaderWakeup {
        std::ptr::null()
    }

    /// When writers request the pages of their rings.
    fn prefault(&self) -> Prefault {
        Prefault::Never
    }

    /// True if a child of `fork` may still write to the addresses of its parent's areas: they are
    /// mapped to memory that has no reader.
    fn leaves_room(&self) -> bool {
        false
    }

    /// Called before a `fork`.
    fn before_fork(&self) {}

    /// Called after a `fork`, in the child.
    fn after_fork(&self) {}

    /// Called when the program ends by `exit`.
    fn at_exit(&self) {}
}

// SAFETY: the kernel returns areas as `linux/ltt.h` describes them, and new ones in a child of
// `fork`. The calls are raw system calls, which preserve `errno`.
unsafe impl Kernel for Calls {
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        Calls::alloc_tracebuf(self, signo)
    }

    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno> {
        Calls::update(self, buffer)
    }

    fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno> {
        Calls::switch(self, buffer)
    }

    fn fire(&self, buffer: NonNull<u8>, trigger: u8) -> Result<(), Errno> {
        Calls::fire(self, buffer, trigger)
    }
}
