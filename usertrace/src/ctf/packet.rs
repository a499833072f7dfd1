//! The packet that is put together.

use std::sync::{Arc, Mutex, PoisonError};

/// Disks are written in blocks of this many bytes, or of a part of it.
pub(super) const BLOCK: usize = 4096;
/// Room for a packet, unless one event alone needs more. Half of a second-level cache or less, on most machines.
const ROOM: usize = 1 << 20;

/// Memory for packets, which the streams of a trace have in turns: one has it only while it has a packet.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketMemory(Arc<Mutex<Vec<u8>>>);

impl PacketMemory {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give(&self, memory: Vec<u8>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = memory;
    }
}

/// A packet. It lies in memory as it will in the file, as to where blocks begin, so that it can be written from there
/// without another copy, see `file.rs`.
#[derive(Debug)]
pub(super) struct Packet {
    pool: PacketMemory,
    /// Empty: there is no packet.
    memory: Vec<u8>,
    start: usize,
    content: usize,
    end: usize,
}

impl Packet {
    pub(super) fn new(pool: PacketMemory) -> Self {
        Self {
            pool,
            memory: Vec::new(),
            start: 0,
            content: 0,
            end: 0,
        }
    }

    /// Has it no event?
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.end == self.content
    }

    /// Begins it, for a place in the file, with room for its header, and for that many bytes of events at least.
    pub(super) fn begin(&mut self, at: u64, header_len: usize, content_len: usize) {
        let len = ROOM.max(header_len + content_len);
        // Blocks before, for where it begins, and behind, for where it ends.
        let needed = len + 3 * BLOCK;
        if self.memory.is_empty() {
            self.memory = self.pool.take();
        }
        if self.memory.len() < needed {
            // Not what was there made larger: of new memory, no page is there until it is used.
            self.memory = vec![0; needed];
        }
        let aligned = self.memory.as_ptr().addr().wrapping_neg() % BLOCK;
        self.start = aligned + (at % BLOCK as u64) as usize;
        self.content = self.start + header_len;
        self.end = self.content;
    }

    /// So many more bytes of its events. None: it has no room for them.
    #[inline]
    pub(super) fn add(&mut self, len: usize) -> Option<&mut [u8]> {
        // There is always room for what it is filled up with.
        let room = self.memory.get_mut(self.end..)?.get_mut(..len + BLOCK)?;
        self.end += len;
        Some(&mut room[..len])
    }

    /// How long it is.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// All of it, with its header, and filled up with so many zeros.
    pub(super) fn bytes(&mut self, header: &[u8], zeros: usize) -> &[u8] {
        self.memory[self.start..self.content].copy_from_slice(header);
        self.memory[self.end..][..zeros].fill(0);
        &self.memory[self.start..self.end + zeros]
    }

    /// There is none any more.
    pub(super) fn clear(&mut self) {
        self.pool.give(std::mem::take(&mut self.memory));
        (self.start, self.content, self.end) = (0, 0, 0);
    }
}
