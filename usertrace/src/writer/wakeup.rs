//! How writers wake readers.

use std::ptr::NonNull;

use super::doorbell::Doorbell;

/// How readers are told that there is something to read, or that somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// They are not, and nobody waits for them.
    None,
    /// By a doorbell, of each sub-buffer that is filled. To stay mapped as the rings do.
    Doorbell(*const Doorbell),
    /// By the kernel, which is asked to switch the buffer at this address. What is filled they see
    /// by themselves.
    Switch(NonNull<u8>),
}
