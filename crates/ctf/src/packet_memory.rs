//! A pool of memory for packets.
//!
//! A consumer of a thousand processes has a thousand streams, but only some of them have a packet
//! at a time. They take turns with this memory: new memory costs a fault for each page.

use std::sync::{Mutex, TryLockError};

use crate::pages::Pages;

/// How many packets' memory to keep. A recorder has two threads that write packets, one of them for
/// the kernel's own events.
const MOST: usize = 2;

/// The pool of this process.
///
/// It is not thread-local: traced programs contain this code, too. The thread-local storage of a
/// library with restartable sequences is static, which is scarce (`writer/thread/`).
pub(super) static PACKET_MEMORY: PacketMemory = PacketMemory::new();

/// A pool of memory. Its lock is only tried: a caller that does not get it uses new memory.
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

    /// Returns memory to the pool, or to the kernel if the pool is full.
    pub(super) fn give(&self, memory: Pages) {
        self.with(|kept| {
            if kept.len() < MOST {
                kept.push(memory);
            }
        });
    }

    /// Calls `body`, unless another thread holds the lock. In a child of `fork`, that thread may
    /// only exist in the parent.
    fn with<R>(&self, body: impl FnOnce(&mut Vec<Pages>) -> R) -> Option<R> {
        let mut kept = match self.0.try_lock() {
            Ok(kept) => kept,
            // A panic leaves the list valid: it only has unused memory.
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
    fn memory_is_reused() {
        let kept = PacketMemory::new();
        assert!(kept.take().is_none());
        let memory = Pages::new(1);
        let first = memory.as_ptr();
        kept.give(memory);
        assert_eq!(kept.take().unwrap().as_ptr(), first);
        assert!(kept.take().is_none());
    }

    #[test]
    fn pool_is_bounded() {
        let kept = PacketMemory::new();
        for _ in 0..2 * MOST {
            kept.give(Pages::new(1));
        }
        assert_eq!(std::iter::from_fn(|| kept.take()).count(), MOST);
    }

    /// The lock may be held forever, in a child of `fork`.
    #[test]
    fn held_lock_is_not_waited_for() {
        let kept = PacketMemory::new();
        kept.give(Pages::new(1));
        let held = kept.0.lock().unwrap();
        assert!(kept.take().is_none());
        kept.give(Pages::new(1));
        drop(held);
        assert_eq!(std::iter::from_fn(|| kept.take()).count(), 1);
    }
}
