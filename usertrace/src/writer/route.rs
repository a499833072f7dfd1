//! The fast path of an event that one trace wants: its channel and its id there, in one word.
//!
//! It is one word so that channel and id always belong together. A writer reads it twice: first for
//! the channel; then for the id, in the restartable sequence, after it saw that the channel is
//! open. If the word still names that channel, the id is one of the trace whose rings the channel
//! has: an update clears the word before it opens the channel for another trace.

use std::sync::atomic::{AtomicU64, Ordering};

use usertrace_sys::uapi::LttRingControl;

use super::channel::Channel;

/// Distance of control blocks in channels that routes lead to, as a power of two.
pub(super) const STRIDE_BITS: u32 = size_of::<LttRingControl>().trailing_zeros();

const _: () = assert!(size_of::<LttRingControl>().is_power_of_two());

/// Number of bits of the id, which are the lowest. Above them is the channel's address.
pub(super) const ID_BITS: u32 = 16;

/// Where an event goes; 0: it takes the slow path.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Route(AtomicU64);

impl Route {
    /// The slow path.
    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes the event take the slow path.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Leads to a channel with rings of CPUs.
    ///
    /// The event takes the slow path if the channel's address has too many bits, as only addresses
    /// that a program asked for have, or if its control blocks are not adjacent.
    ///
    /// # Safety
    /// The channel must stay mapped, open or not, as long as a thread may have read this.
    pub(crate) unsafe fn set(&self, channel: &Channel, id: u16) {
        let address = std::ptr::from_ref(channel).expose_provenance() as u64;
        let stride = channel.control_stride.load(Ordering::Relaxed);
        let is_fast =
            address << ID_BITS >> ID_BITS == address && stride == 1 << STRIDE_BITS && id != 0;
        let word = if is_fast {
            address << ID_BITS | u64::from(id)
        } else {
            0
        };
        // Pairs with the fence in the event path, and with the order of the loads in the sequence:
        // the fields of the channel were stored before.
        self.0.store(word, Ordering::Release);
    }

    /// The channel; none if the event takes the slow path.
    #[inline(always)]
    pub(crate) fn channel(&self) -> Option<&Channel> {
        let address = (self.0.load(Ordering::Relaxed) >> ID_BITS) as usize;
        // SAFETY: `set` exposed the address, and its caller promised that the channel stays mapped.
        unsafe { std::ptr::with_exposed_provenance::<Channel>(address).as_ref() }
    }
}
