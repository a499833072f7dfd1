//! What the runtime asks of the kernel.

use std::ptr::NonNull;

use usertrace_sys::uapi::LttTracebuf;
use usertrace_sys::{Calls, Errno, Update};

/// The three system calls, or what stands for them in a test.
///
/// # Safety
/// [`alloc_tracebuf`](Self::alloc_tracebuf) must return areas as the header `linux/ltt.h` describes them, which stay
/// mapped until the process ends; in a child of `fork`, areas of its own. The functions must be async-signal-safe, and
/// leave `errno` alone.
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
