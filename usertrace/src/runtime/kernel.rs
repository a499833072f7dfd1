//! What the runtime asks of the kernel.

use std::ptr::NonNull;

use usertrace_sys::uapi::LttTracebuf;
use usertrace_sys::{Calls, Errno, Update};

use crate::writer::{Doorbell, Prefault};

/// The three system calls, or what stands for them: the fallback, or a test.
///
/// # Safety
/// [`alloc_tracebuf`](Self::alloc_tracebuf) must return areas as the header `linux/ltt.h` describes
/// them, which stay mapped until the process ends; in a child of `fork`, areas of its own. The
/// functions must be async-signal-safe, and leave `errno` alone.
pub unsafe trait Kernel: Sync {
    /// See [`Calls::alloc_tracebuf`].
    ///
    /// # Errors
    /// As there.
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno>;

    /// See [`Calls::update`].
    ///
    /// # Errors
    /// As there.
    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno>;

    /// See [`Calls::switch`].
    ///
    /// # Errors
    /// As there.
    fn switch(&self, buffer: NonNull<u8>) -> Result<(), Errno>;

    /// Traces may be removed while the process runs.
    fn removes_traces(&self) -> bool {
        true
    }

    /// There are rings of CPUs, which nobody without restartable sequences can write.
    fn needs_rseq(&self) -> bool {
        true
    }

    /// Where writers tell that a sub-buffer is full; NULL: nowhere, and those who wait for a reader
    /// ask for a [`switch`](Self::switch). Asked after [`alloc_tracebuf`](Self::alloc_tracebuf).
    fn doorbell(&self) -> *const Doorbell {
        std::ptr::null()
    }

    /// When writers are to ask for the pages of their rings.
    fn prefault(&self) -> Prefault {
        Prefault::Never
    }

    /// A child of `fork` may still write where its parent's areas were: it has something else
    /// there, and nobody reads that.
    fn leaves_room(&self) -> bool {
        false
    }

    /// Called before a `fork`.
    fn before_fork(&self) {}

    /// Called after a `fork`, in the child.
    fn after_fork(&self) {}

    /// Called at the end of the program, if it comes by `exit`.
    fn at_exit(&self) {}
}

// SAFETY: the kernel keeps the promises; the calls are raw system calls.
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
}
