//! The short way of an event that one trace wants: its channel and its id there, in one word.
//!
//! One word, so that whoever reads it has an id that belongs to the channel. It is read twice: for
//! the channel, and in the restartable sequence, after it was found that the channel is open, for
//! the id. If it is still of that channel then, the id is one of the trace whose rings the channel
//! has: whoever gives the channel to another trace clears this word before it opens the channel
//! again.

use std::sync::atomic::{AtomicU64, Ordering};

use usertrace_sys::uapi::LttRingControl;

use super::channel::Channel;

/// Control blocks lie so many bytes apart where there are routes, as a power of two.
pub(super) const STRIDE_BITS: u32 = size_of::<LttRingControl>().trailing_zeros();

const _: () = assert!(size_of::<LttRingControl>().is_power_of_two());

/// Bits of the id, the lowest ones. Above them is the channel's address.
pub(super) const ID_BITS: u32 = 16;

/// Where an event goes; zeros: the long way.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Route(AtomicU64);

impl Route {
    /// The long way.
    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Leads to a channel of CPUs' rings. The way is the long one if its address is too long, which
    /// addresses are that a program asked for, or if its control blocks do not lie side by side.
    ///
    /// # Safety
    /// The channel must stay where it is, open or not, as long as anybody may have seen this.
    pub(crate) unsafe fn set(&self, channel: &Channel, id: u16) {
        let address = std::ptr::from_ref(channel).expose_provenance() as u64;
        let stride = channel.control_stride.load(Ordering::Relaxed);
        let short =
            address << ID_BITS >> ID_BITS == address && stride == 1 << STRIDE_BITS && id != 0;
        let word = if short {
            address << ID_BITS | u64::from(id)
        } else {
            0
        };
        // Pairs with the fence in the event path, and with the order of the loads in the sequence:
        // what the channel is, was there before.
        self.0.store(word, Ordering::Release);
    }

    /// The channel; nothing if the way is the long one.
    #[inline(always)]
    pub(crate) fn channel(&self) -> Option<&Channel> {
        let address = (self.0.load(Ordering::Relaxed) >> ID_BITS) as usize;
        // SAFETY: `set` exposed it, and its caller promised that it stays.
        unsafe { std::ptr::with_exposed_provenance::<Channel>(address).as_ref() }
    }
}
