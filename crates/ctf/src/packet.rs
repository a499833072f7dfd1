//! The packet that is put together.

use crate::packet_memory::PACKET_MEMORY;
use crate::pages::{HUGE_PAGE, Pages};

/// Disks are written in blocks of this many bytes, or of a part of it.
pub(super) const BLOCK: usize = 4096;
/// Room for a packet, unless one event alone needs more: with what [`Packet::begin`] adds, four
/// huge pages, of which those are there that were used. While a disk takes a long packet, the next
/// events leave the caches of the processors that write them, and are cheaper to read from memory.
pub(super) const ROOM: usize = 4 * HUGE_PAGE - 2 * BLOCK;
/// Events begin at multiples of so many bytes, counted from where their packet begins.
const ALIGN: usize = 8;

/// A packet. It lies in memory as it will in the file, as to where blocks begin, so that it can be
/// written from there without another copy, see `file.rs`.
#[derive(Debug)]
pub(super) struct Packet {
    /// Empty: there is no packet.
    memory: Pages,
    start: usize,
    /// Where the first event is to be.
    content: usize,
    /// Where the next one is to be, and how much of what is before that is not the last one's.
    end: usize,
    padding: usize,
    /// Where the last one has to end at the latest, and a block.
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

    /// Has it no event?
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.end == self.content
    }

    /// Begins it, for a place in the file, with room for its header, and for that many bytes of
    /// events at least. It becomes no longer than `longest` unless these bytes need it.
    pub(super) fn begin(&mut self, at: u64, header_len: usize, content_len: usize, longest: usize) {
        let to_content = header_len.next_multiple_of(ALIGN);
        let len = to_content + content_len.next_multiple_of(ALIGN);
        // A block before, for where it begins, and one behind, for where it ends.
        let needed = ROOM.max(len) + 2 * BLOCK;
        if self.memory.is_empty() {
            self.memory = PACKET_MEMORY.take().unwrap_or_default();
        }
        if self.memory.len() < needed {
            // Not what was there made larger: of new memory, no page is there until it is used.
            self.memory = Pages::new(needed);
        }
        self.start = (at % BLOCK as u64) as usize;
        self.content = self.start + to_content;
        self.end = self.content;
        self.padding = to_content - header_len;
        self.limit = (self.start + longest.max(len) + BLOCK).min(self.memory.len());
    }

    /// So many more bytes of its events, and what is behind them up to where the next one is to be.
    /// None: it has no room for them.
    #[inline]
    pub(super) fn add(&mut self, len: usize) -> Option<&mut [u8]> {
        let padded = (len + (ALIGN - 1)) & !(ALIGN - 1);
        // There is always room for what it is filled up with.
        let room = self.memory.get_mut(self.end..self.limit)?;
        let room = room.get_mut(..padded + BLOCK)?;
        self.end += padded;
        self.padding = padded - len;
        Some(&mut room[..padded])
    }

    /// Room for so many more bytes of its events. None: there is not as much.
    pub(super) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let room = self.memory.get_mut(self.end..self.limit)?;
        let room = room.get_mut(..len + BLOCK)?;
        Some(&mut room[..len])
    }

    /// Of what was room for them so many bytes are events now; so many of these are behind the last
    /// one.
    pub(super) fn add_from_room(&mut self, len: usize, padding: usize) {
        debug_assert!(len.is_multiple_of(ALIGN) && padding < ALIGN);
        self.end += len;
        self.padding = padding;
    }

    /// How long it is, up to the end of its last event.
    pub(super) fn len(&self) -> usize {
        self.end - self.padding - self.start
    }

    /// All of it, with its header, and filled up with so many zeros.
    pub(super) fn bytes(&mut self, header: &[u8], zeros: usize) -> &[u8] {
        let content = &mut self.memory[self.start..self.content];
        let (to, padding) = content.split_at_mut(header.len());
        to.copy_from_slice(header);
        padding.fill(0);
        let end = self.start + self.len();
        self.memory[end..][..zeros].fill(0);
        &self.memory[self.start..end + zeros]
    }

    /// How many zeros there are to be behind a packet that need not end where a block does.
    pub(super) fn zeros(&self) -> usize {
        self.padding
    }

    /// There is none any more.
    pub(super) fn clear(&mut self) {
        let mut memory = std::mem::take(&mut self.memory);
        // Another one may have given its memory back since.
        if !memory.is_empty() {
            // The next ones may well be as long.
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
    fn a_packet_without_memory_gives_none_back() {
        let mut packet = Packet::new();
        packet.clear();
        packet.begin(BLOCK as u64 + 1, 76, 0, ROOM);
        assert_eq!(packet.start, 1);
        assert!(packet.is_empty() && !packet.memory.is_empty());
        packet.clear();
        assert!(packet.memory.is_empty());
    }
}
