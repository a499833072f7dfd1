//! Where a ring's bytes are.

/// The bytes of one ring.
pub trait RingMemory {
    /// Copies `buffer.len()` bytes from `offset` of the ring. What is not there reads as zeros: a page that was never
    /// written, one that the dump does not have, or whatever lies behind the ring.
    fn read(&mut self, offset: u64, buffer: &mut [u8]);
}

impl<M: RingMemory + ?Sized> RingMemory for &mut M {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        (**self).read(offset, buffer);
    }
}

impl RingMemory for &[u8] {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        buffer.fill(0);
        let there = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.get(offset..))
            .unwrap_or_default();
        let len = there.len().min(buffer.len());
        buffer[..len].copy_from_slice(&there[..len]);
    }
}
