//! Memory for packets that no packet uses.
//!
//! A consumer of a thousand processes has a thousand streams, but only some of them have a packet
//! at a time. They take turns with this memory: new memory costs a fault for each page.

use std::sync::{Mutex, TryLockError};

use crate::pages::Pages;

/// How many packets' memory is kept. A recorder has two threads that write packets, one of which
/// records the kernel's own events.
const MOST: usize = 2;

/// The process's.
///
/// It is not thread-local: traced programs contain this code, too, and the thread-local storage of
/// a library with restartable sequences is static, which is scarce (`writer/thread/`).
pub(super) static PACKET_MEMORY: PacketMemory = PacketMemory::new();

/// Memory that is kept. Nobody waits for it: at worst, memory is new.
#[derive(Debug)]
pub(super) struct PacketMemory(Mutex<Vec<Pages>>);

impl PacketMemory {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Takes memory, if there is any.
    pub(super) fn take(&self) -> Option<Pages> {
        self.with(Vec::pop).flatten()
    }

    /// Gives memory back, to whoever comes next or to the kernel.
    pub(super) fn give(&self, memory: Pages) {
        self.with(|kept| {
            if kept.len() < MOST {
                kept.push(memory);
            }
        });
    }

    /// Calls `body` unless another thread is here. In a child of `fork`, that thread may exist in
    /// the parent only.
    fn with<R>(&self, body: impl FnOnce(&mut Vec<Pages>) -> R) -> Option<R> {
        let mut kept = match self.0.try_lock() {
            Ok(kept) => kept,
            // Whatever a panic interrupted, the list is one of memory that nobody uses.
            Err(TryLockError::Poisoned(kept)) => kept.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(body(&mut kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_for_the_next_packet() {
        let kept = PacketMemory::new();
        assert!(kept.take().is_none());
        let memory = Pages::new(1);
        let first = memory.as_ptr();
        kept.give(memory);
        assert_eq!(kept.take().unwrap().as_ptr(), first);
        assert!(kept.take().is_none());
    }

    #[test]
    fn kept_memory_is_bounded() {
        let kept = PacketMemory::new();
        for _ in 0..2 * MOST {
            kept.give(Pages::new(1));
        }
        assert_eq!(std::iter::from_fn(|| kept.take()).count(), MOST);
    }

    /// As in a child of `fork` whose parent was here at that moment.
    #[test]
    fn nobody_waits_for_kept_memory() {
        let kept = PacketMemory::new();
        kept.give(Pages::new(1));
        let held = kept.0.lock().unwrap();
        assert!(kept.take().is_none());
        kept.give(Pages::new(1));
        drop(held);
        assert_eq!(std::iter::from_fn(|| kept.take()).count(), 1);
    }
}
