//! A cache of the ids of events whose library was unloaded: if it is loaded again, its events get
//! the same ids.
//!
//! Ids of a trace are never reused. If each `dlopen` of a library gave its events new ids, ids
//! would run out, and each new id would add a description to the control channel, which is never
//! emptied.

use std::ptr::NonNull;

use usertrace_sys::limits::SLOTS;

use super::hash::hash;
use crate::os::fork_private;

const BUCKETS: usize = 1024;

/// Size of the blocks that memory is allocated in.
const PIECE: usize = 1 << 16;

/// An event that was described, and whose library was unloaded.
#[repr(C)]
struct Node {
    next: Option<NonNull<Node>>,
    hash: u64,
    ids: [u16; SLOTS],
    /// Generations of the traces that the ids belong to.
    generations: [u64; SLOTS],
    /// Length of the description, which follows.
    len: usize,
}

impl Node {
    fn description(&self) -> &[u8] {
        let start = std::ptr::from_ref(self).wrapping_add(1).cast();
        // SAFETY: `EventIdCache::add` stored `len` bytes after the node.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}

/// A hash table of the ids of such events.
///
/// All zeros is an empty cache. `fork` wipes it and its nodes in the child.
#[repr(C)]
pub(super) struct EventIdCache {
    buckets: [Option<NonNull<Node>>; BUCKETS],
    /// Unused memory of the current block.
    room: Option<NonNull<u8>>,
    room_len: usize,
}

impl EventIdCache {
    fn find(&self, hash: u64, description: &[u8]) -> Option<NonNull<Node>> {
        let mut next = self.buckets[hash as usize % BUCKETS];
        while let Some(node) = next {
            // SAFETY: nodes are never freed.
            let at = unsafe { node.as_ref() };
            if at.hash == hash && at.description() == description {
                return Some(node);
            }
            next = at.next;
        }
        None
    }

    /// The id that an event had in the trace of this generation.
    pub(super) fn id(&self, description: &str, slot: usize, generation: u64) -> Option<u16> {
        let node = self.find(hash(&[description.as_bytes()]), description.as_bytes())?;
        // SAFETY: nodes are never freed.
        let node = unsafe { node.as_ref() };
        (node.generations[slot] == generation && generation != 0).then(|| node.ids[slot])
    }

    /// Stores the id of an event. Without memory this does nothing, and the event gets another id
    /// next time.
    pub(super) fn keep(&mut self, description: &str, slot: usize, generation: u64, id: u16) {
        let (description, hash) = (description.as_bytes(), hash(&[description.as_bytes()]));
        let found = self.find(hash, description);
        let Some(mut node) = found.or_else(|| self.add(hash, description)) else {
            return;
        };
        // SAFETY: nodes are never freed, and only this cache, borrowed exclusively, refers to them.
        let node = unsafe { node.as_mut() };
        node.ids[slot] = id;
        node.generations[slot] = generation;
    }

    fn add(&mut self, hash: u64, description: &[u8]) -> Option<NonNull<Node>> {
        let len = size_of::<Node>() + description.len().next_multiple_of(align_of::<Node>());
        if self.room_len < len {
            if len > PIECE {
                return None;
            }
            // SAFETY: zeros are valid bytes.
            self.room = Some(unsafe { fork_private::map::<[u8; PIECE]>() }?.cast());
            self.room_len = PIECE;
        }
        let node = self.room?.cast::<Node>();
        let bucket = &mut self.buckets[hash as usize % BUCKETS];
        // SAFETY: `room` has at least `len` bytes, and is aligned because all lengths are multiples
        // of the node's alignment.
        unsafe {
            node.write(Node {
                next: *bucket,
                hash,
                ids: [0; SLOTS],
                generations: [0; SLOTS],
                len: description.len(),
            });
            let text = node.add(1).cast::<u8>();
            text.copy_from_nonoverlapping(NonNull::from(description).cast(), description.len());
            self.room = Some(node.cast::<u8>().add(len));
        }
        self.room_len -= len;
        *bucket = Some(node);
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_belong_to_one_trace_generation() {
        // SAFETY: all zeros is an empty cache.
        let known: &mut EventIdCache = unsafe { fork_private::map().unwrap().as_mut() };
        let name = |n: u32| format!("test:event{n} 6 u32 {}", "x".repeat(n as usize % 50));
        for n in 0..5000 {
            assert_eq!(known.id(&name(n), 3, 7), None);
            known.keep(&name(n), 3, 7, n as u16 + 1);
            known.keep(&name(n), 0, 8, n as u16 + 2);
        }
        for n in 0..5000 {
            assert_eq!(known.id(&name(n), 3, 7), Some(n as u16 + 1));
            assert_eq!(known.id(&name(n), 0, 8), Some(n as u16 + 2));
            assert_eq!(known.id(&name(n), 3, 8), None);
            assert_eq!(known.id(&name(n), 1, 0), None);
        }
        known.keep(&name(9), 3, 9, 60_000);
        assert_eq!(known.id(&name(9), 3, 7), None);
        assert_eq!(known.id(&name(9), 3, 9), Some(60_000));
        // An oversized description is not cached.
        let long = "x".repeat(PIECE);
        known.keep(&long, 0, 1, 1);
        assert_eq!(known.id(&long, 0, 1), None);
    }
}
