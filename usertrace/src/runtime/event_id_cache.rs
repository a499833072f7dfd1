//! Ids of events whose library is gone: when it comes again, they have them again.
//!
//! An event's id in a trace is given once. If each `dlopen` of a library gave its events new ones,
//! ids would run out, and each of them would be described once more, in a channel that is never
//! emptied.

use std::ptr::NonNull;

use usertrace_sys::limits::SLOTS;

use super::fork_private;
use super::hash::hash;

const BUCKETS: usize = 1024;

/// Memory is taken in pieces of so many bytes.
const PIECE: usize = 1 << 16;

/// An event that was described, and is gone.
#[repr(C)]
struct Node {
    next: Option<NonNull<Node>>,
    hash: u64,
    ids: [u16; SLOTS],
    /// Of the traces that the ids are of.
    generations: [u64; SLOTS],
    /// Length of the description, which follows.
    len: usize,
}

impl Node {
    fn description(&self) -> &[u8] {
        let start = std::ptr::from_ref(self).wrapping_add(1).cast();
        // SAFETY: `EventIdCache::add` stored so many bytes there.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}

/// The ids of such events.
///
/// All zeros is one that knows nothing. What it refers to is wiped in a child of `fork`, as it is
/// itself.
#[repr(C)]
pub(super) struct EventIdCache {
    buckets: [Option<NonNull<Node>>; BUCKETS],
    /// Memory that is not used yet.
    room: Option<NonNull<u8>>,
    room_len: usize,
}

impl EventIdCache {
    fn find(&self, hash: u64, description: &[u8]) -> Option<NonNull<Node>> {
        let mut next = self.buckets[hash as usize % BUCKETS];
        while let Some(node) = next {
            // SAFETY: nodes stay.
            let at = unsafe { node.as_ref() };
            if at.hash == hash && at.description() == description {
                return Some(node);
            }
            next = at.next;
        }
        None
    }

    /// The id that an event had in the trace of that generation.
    pub(super) fn id(&self, description: &str, slot: usize, generation: u64) -> Option<u16> {
        let node = self.find(hash(&[description.as_bytes()]), description.as_bytes())?;
        // SAFETY: nodes stay.
        let node = unsafe { node.as_ref() };
        (node.generations[slot] == generation && generation != 0).then(|| node.ids[slot])
    }

    /// Keeps the id that an event has there. If there is no memory, it gets another one next time.
    pub(super) fn keep(&mut self, description: &str, slot: usize, generation: u64, id: u16) {
        let (description, hash) = (description.as_bytes(), hash(&[description.as_bytes()]));
        let found = self.find(hash, description);
        let Some(mut node) = found.or_else(|| self.add(hash, description)) else {
            return;
        };
        // SAFETY: nodes stay, and are this one's.
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
            // SAFETY: zeros are bytes.
            self.room = Some(unsafe { fork_private::map::<[u8; PIECE]>() }?.cast());
            self.room_len = PIECE;
        }
        let node = self.room?.cast::<Node>();
        let bucket = &mut self.buckets[hash as usize % BUCKETS];
        // SAFETY: so much room is there, aligned, as all lengths are multiples.
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
    fn ids_are_those_of_the_trace_that_they_were_given_in() {
        // SAFETY: zeros know nothing.
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
        // One that has no room is not kept.
        let long = "x".repeat(PIECE);
        known.keep(&long, 0, 1, 1);
        assert_eq!(known.id(&long, 0, 1), None);
    }
}
