//! Remembers pages of code whose addresses need no further look.

use std::sync::atomic::{AtomicU64, Ordering};

/// Pages that are remembered. Each has one possible place.
const PLACES: usize = 512;
const PAGE_BITS: u32 = 12;
/// Bits of a place that say since which change it is valid.
const STAMP_BITS: u32 = 16;

/// Pages whose objects are described, or that are in no object.
#[derive(Debug)]
pub(super) struct KnownCode([AtomicU64; PLACES]);

/// Those of this process.
pub(super) static KNOWN: KnownCode = KnownCode([const { AtomicU64::new(0) }; PLACES]);

impl KnownCode {
    /// Whether the page of an address needs no look, as of the last of `changes` changes.
    pub(super) fn has(&self, address: usize, changes: u32) -> bool {
        let (place, word) = self.place(address, changes);
        // Relaxed: a page that is forgotten, or remembered twice, costs another look.
        place.load(Ordering::Relaxed) == word
    }

    /// Remembers the page of an address.
    pub(super) fn add(&self, address: usize, changes: u32) {
        let (place, word) = self.place(address, changes);
        place.store(word, Ordering::Relaxed);
    }

    fn place(&self, address: usize, changes: u32) -> (&AtomicU64, u64) {
        let page = address as u64 >> PAGE_BITS;
        let stamp = u64::from(changes) & ((1 << STAMP_BITS) - 1);
        (&self.0[page as usize % PLACES], page << STAMP_BITS | stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_forget_all() {
        let known = KnownCode([const { AtomicU64::new(0) }; PLACES]);
        assert!(!known.has(0x7f00_0000_1234, 7));
        known.add(0x7f00_0000_1234, 7);
        assert!(known.has(0x7f00_0000_1000, 7) && known.has(0x7f00_0000_1fff, 7));
        assert!(!known.has(0x7f00_0000_2000, 7) && !known.has(0x7f00_0000_1234, 8));
        known.add(0x7f00_0000_1234 + PLACES * 4096, 7);
        assert!(!known.has(0x7f00_0000_1234, 7));
    }
}
