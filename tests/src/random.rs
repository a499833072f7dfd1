//! Numbers for tests that must not always do the same.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Random enough. What it shows as repeats what comes next.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Another one each time.
    #[must_use]
    pub fn new() -> Self {
        Self::with(RandomState::new().build_hasher().finish())
    }

    /// The same one each time: for children of one process, whose new ones are all alike.
    #[must_use]
    pub fn with(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The next number, from 0 up to below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.word() >> 33) % limit
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}
