//! The root page of a dump that does not say where it is.
//!
//! Images of memory have no notes, and QEMU's `dump-guest-memory` has those of the kernel only if the machine has its
//! `vmcoreinfo` device. The root page says by a number and a sum what it is, and it begins a page.

use std::ops::Range;

use usertrace_sys::crash::{LTT_CRASH_MAGIC, LTT_CRASH_PAGE_MAGIC};

use super::directory::read_root;
use super::{PhysicalMemory, Presence};

/// Pages are no smaller.
const PAGE: u64 = 4096;

/// The addresses of all pages in these ranges that are a root page and lead to a directory. More than one: memory that has been
/// through a restart may have that of the kernel before.
#[must_use]
pub fn find_roots(
    memory: &impl PhysicalMemory,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> Vec<u64> {
    let has = |address: u64, magic: u64| {
        let mut word = [0; 8];
        memory.read(address, &mut word) == Presence::Whole && u64::from_le_bytes(word) == magic
    };
    let is_root = |&address: &u64| {
        has(address, LTT_CRASH_MAGIC)
            && read_root(memory, address)
                .is_ok_and(|root| root.directory == 0 || has(root.directory, LTT_CRASH_PAGE_MAGIC))
    };
    let pages = ranges.into_iter().flat_map(|range| {
        let first = range.start.checked_next_multiple_of(PAGE);
        let pages = first.map(|first| (first..range.end).step_by(PAGE as usize));
        pages.into_iter().flatten()
    });
    pages.filter(is_root).collect()
}
