//! Assembles a packet in memory.

use crate::packet_memory::PACKET_MEMORY;
use crate::pages::{HUGE_PAGE, Pages};

/// Block size of direct writes: a multiple of the disk's.
pub(super) const BLOCK: usize = 4096;
/// Capacity for a packet, unless one event alone needs more. With what [`Packet::begin`] adds, it
/// is four huge pages, which the kernel allocates when they are used. While the disk takes a long
/// packet, the next events leave the caches of the CPUs that wrote them. Reading them from memory
/// is cheaper than from another CPU's cache.
pub(super) const ROOM: usize = 4 * HUGE_PAGE - 2 * BLOCK;
/// Alignment of events, relative to the start of their packet.
const ALIGN: usize = 8;

/// A packet. It has the same offset within a block in memory as in the file, so that it can be
/// written directly, without another copy (see `file.rs`).
#[derive(Debug)]
pub(super) struct Packet {
    /// Empty if there is no packet.
    memory: Pages,
    start: usize,
    /// Offset of the first event.
    content: usize,
    /// Offset of the next event, and the padding before it.
    end: usize,
    padding: usize,
    /// Largest offset of an event's end, plus a block.
    limit: usize,
}

impl Packet {
    pub(super) fn new() -> Self {
        Self {
            memory: Pages::default(),
            start: 0,
            content: 0,
            end: 0,
            padding: 0,
            limit: 0,
        }
    }

    /// Whether the packet has no events.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.end == self.content
    }

    /// Begins a packet at file offset `at`, with room for its header and at least `content_len`
    /// bytes of events. It gets no longer than `longest`, unless these bytes need more.
    pub(super) fn begin(&mut self, at: u64, header_len: usize, content_len: usize, longest: usize) {
        let to_content = header_len.next_multiple_of(ALIGN);
        let len = to_content + content_len.next_multiple_of(ALIGN);
        // One block for the offset of its start, and one for the padding at its end.
        let needed = ROOM.max(len) + 2 * BLOCK;
        if self.memory.is_empty() {
            self.memory = PACKET_MEMORY.take().unwrap_or_default();
        }
        if self.memory.len() < needed {
            // New memory instead of growing the old: its pages are not allocated until they are
            // used.
            self.memory = Pages::new(needed);
        }
        self.start = (at % BLOCK as u64) as usize;
        self.content = self.start + to_content;
        self.end = self.content;
        self.padding = to_content - header_len;
        self.limit = (self.start + longest.max(len) + BLOCK).min(self.memory.len());
    }

    /// Adds `len` bytes of an event, and returns them with their padding. None if they do not fit.
    #[inline]
    pub(super) fn add(&mut self, len: usize) -> Option<&mut [u8]> {
        let padded = (len + (ALIGN - 1)) & !(ALIGN - 1);
        // A block always stays free for the padding of the packet.
        let room = self.memory.get_mut(self.end..self.limit)?;
        let room = room.get_mut(..padded + BLOCK)?;
        self.end += padded;
        self.padding = padded - len;
        Some(&mut room[..padded])
    }

    /// Returns room for `len` bytes of events. None if they do not fit.
    pub(super) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let room = self.memory.get_mut(self.end..self.limit)?;
        let room = room.get_mut(..len + BLOCK)?;
        Some(&mut room[..len])
    }

    /// Adds the first `len` bytes of the room, of which `padding` follow the last event.
    pub(super) fn add_from_room(&mut self, len: usize, padding: usize) {
        debug_assert!(len.is_multiple_of(ALIGN) && padding < ALIGN);
        self.end += len;
        self.padding = padding;
    }

    /// Length up to the end of the last event.
    pub(super) fn len(&self) -> usize {
        self.end - self.padding - self.start
    }

    /// Returns the packet with its header and `zeros` bytes of padding.
    pub(super) fn bytes(&mut self, header: &[u8], zeros: usize) -> &[u8] {
        let content = &mut self.memory[self.start..self.content];
        let (to, padding) = content.split_at_mut(header.len());
        to.copy_from_slice(header);
        padding.fill(0);
        let end = self.start + self.len();
        self.memory[end..][..zeros].fill(0);
        &self.memory[self.start..end + zeros]
    }

    /// Padding of a packet that need not end with a block.
    pub(super) fn zeros(&self) -> usize {
        self.padding
    }

    /// Ends the packet, and returns its memory.
    pub(super) fn clear(&mut self) {
        let mut memory = std::mem::take(&mut self.memory);
        // There is no memory if there is no packet.
        if !memory.is_empty() {
            // The next packets are probably as long.
            if self.end > HUGE_PAGE / 2 {
                memory.make_huge();
            }
            PACKET_MEMORY.give(memory);
        }
        (self.start, self.content, self.end, self.padding) = (0, 0, 0, 0);
        self.limit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_without_memory_returns_none() {
        let mut packet = Packet::new();
        packet.clear();
        packet.begin(BLOCK as u64 + 1, 76, 0, ROOM);
        assert_eq!(packet.start, 1);
        assert!(packet.is_empty() && !packet.memory.is_empty());
        packet.clear();
        assert!(packet.memory.is_empty());
    }
}
