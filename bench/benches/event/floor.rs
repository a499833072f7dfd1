//! The floor: the time stamp and the stores of a record, which every tracer with time stamps needs.

use std::cell::UnsafeCell;
use std::hint::black_box;

/// As large as our rings are.
const WORDS: usize = super::ours::RING_SIZE / 8;

/// A ring without any protocol.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Floor {
    ring: Vec<u64>,
    at: usize,
}

impl Floor {
    pub(crate) fn new() -> Self {
        // Touched, as the later laps of other rings are.
        Self {
            ring: vec![1; WORDS],
            at: 0,
        }
    }

    #[inline(always)]
    fn event<const WORDS: usize>(&mut self, payload: [u64; WORDS]) {
        if self.at + 1 + WORDS > self.ring.len() {
            self.at = 0;
        }
        let to = self.ring[self.at..][..1 + WORDS].as_mut_ptr();
        // SAFETY: the ring has that many words. Volatile, or else the compiler would remove stores
        // that no code reads.
        unsafe {
            to.write_volatile(usertrace::clock::cycles() << 16 | 1);
            for (n, word) in payload.into_iter().enumerate() {
                to.add(n + 1).write_volatile(word);
            }
        }
        self.at += 1 + WORDS;
    }
}

/// One for each thread.
#[derive(Debug)]
pub(crate) struct Floors([UnsafeCell<Floor>; 2]);

// SAFETY: each thread has its own, see `events`.
unsafe impl Sync for Floors {}

impl Floors {
    pub(crate) fn new() -> Self {
        Self([Floor::new(), Floor::new()].map(UnsafeCell::new))
    }

    /// Writes `count` events of so many words.
    ///
    /// # Safety
    /// Two threads must not use the same number at the same time.
    pub(crate) unsafe fn events<const WORDS: usize>(&self, thread: usize, count: u64) {
        // SAFETY: the caller's promise.
        let floor = unsafe { &mut *self.0[thread].get() };
        for n in 0..count {
            floor.event([black_box(n); WORDS]);
        }
    }
}
