//! Finds the kernel's image in physical memory, through the kernel's own page tables.
//!
//! A program can fill its memory with anything, so a search needs memory that no program can have.
//! On x86-64 that is the first MiB: the kernel reserves all of it at boot (`reserve_real_mode`).
//! There it keeps a top-level page table for processors that start in real mode (`trampoline_pgd`),
//! with all mappings of the kernel, including its image.
//!
//! The kernel frees some of the image at boot: init code and data, gaps between sections, and what
//! lies behind its end. It makes such memory writable, or unmaps it, before a program can get it
//! (`free_init_pages`). So read-only parts of the image belong to the kernel as long as it runs.

use std::ops::Range;

use crate::{PhysicalMemory, Presence};

/// The usable memory in the first MiB. Above are video memory, which programs can write, and
/// firmware.
const LOW: Range<u64> = 0..0xa_0000;
const PAGE: u64 = 4096;
const WORDS: usize = 512;
/// Size of the memory that one entry of the second-lowest table maps.
const LARGE: u64 = 2 << 20;

/// Bits of a page-table entry.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const IS_LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The indices of the image's 1 GiB, from 0xffffffff80000000 on: in the top-level table (and with
/// five levels, also in the next one), and in the table with 1 GiB per entry.
const TOP: usize = 511;
const IMAGE: usize = 510;

/// The kernel's image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelImage {
    /// Read-only parts, sorted, without overlaps.
    pub(super) read_only: Vec<Range<u64>>,
    /// Writable parts: all data, and memory that was freed at boot.
    pub(super) writable: Vec<Range<u64>>,
    /// There are page tables of several kernels, of this one or an earlier one. An earlier one's
    /// image may be a program's memory now.
    pub(super) is_ambiguous: bool,
}

impl KernelImage {
    /// Finds the image on an x86-64 machine. `None` if no page table in the first MiB maps one.
    pub(super) fn find(memory: &impl PhysicalMemory) -> Option<Self> {
        let mut found: Option<Self> = None;
        for address in LOW.step_by(PAGE as usize) {
            let Some(image) = Self::of(memory, address) else {
                continue;
            };
            match &mut found {
                Some(known) if known.is_same(&image) => {}
                Some(known) => {
                    known.is_ambiguous = true;
                    known.read_only.extend(image.read_only);
                    known.writable.extend(image.writable);
                }
                None => found = Some(image),
            }
        }
        let mut found = found?;
        merge(&mut found.read_only);
        merge(&mut found.writable);
        Some(found)
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.read_only, &self.writable) == (&other.read_only, &other.writable)
    }

    /// The image as the top-level page table at this address maps it.
    fn of(memory: &impl PhysicalMemory, top: u64) -> Option<Self> {
        // Most pages are no such table, and their last word shows it.
        let mut word = [0; 8];
        if memory.read(top + 8 * TOP as u64, &mut word) != Presence::Whole {
            return None;
        }
        let mut flags = WRITABLE | USER;
        let mut gigabytes = table_at(memory, u64::from_le_bytes(word), &mut flags)?;
        if gigabytes[IMAGE] & PRESENT == 0 {
            // Five levels of tables.
            gigabytes = table_at(memory, gigabytes[TOP], &mut flags)?;
        }
        let large = table_at(memory, gigabytes[IMAGE], &mut flags)?;
        let (mut image, mut has_text) = (Self::default(), false);
        let mut add = |entry: u64, flags: u64, address: u64, len: u64| {
            let flags = flags & entry;
            if entry & PRESENT == 0 || flags & USER != 0 {
                return;
            }
            has_text |= flags & WRITABLE == 0 && entry & NO_EXECUTE == 0;
            let ranges = match flags & WRITABLE {
                0 => &mut image.read_only,
                _ => &mut image.writable,
            };
            match ranges.last_mut() {
                Some(last) if last.end == address => last.end += len,
                _ => ranges.push(address..address + len),
            }
        };
        for entry in large {
            if entry & PRESENT != 0 && entry & IS_LARGE != 0 {
                add(entry, flags, entry & ADDRESS & !(LARGE - 1), LARGE);
                continue;
            }
            let mut flags = flags;
            let Some(pages) = table_at(memory, entry, &mut flags) else {
                continue;
            };
            for entry in pages {
                add(entry, flags, entry & ADDRESS, PAGE);
            }
        }
        merge(&mut image.read_only);
        merge(&mut image.writable);
        // Memory that is also mapped writable is not read-only.
        let writable =
            |range: &Range<u64>| image.writable.iter().any(|other| overlap(range, other));
        image.read_only.retain(|range| !writable(range));
        has_text.then_some(image)
    }
}

/// The table that an entry points to. Clears the flags that the entry does not have.
fn table_at(memory: &impl PhysicalMemory, entry: u64, flags: &mut u64) -> Option<[u64; WORDS]> {
    if entry & PRESENT == 0 || entry & IS_LARGE != 0 {
        return None;
    }
    *flags &= entry;
    let mut bytes = [0; PAGE as usize];
    if memory.read(entry & ADDRESS, &mut bytes) != Presence::Whole {
        return None;
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Some(words)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Sorts ranges, and joins those that overlap or touch.
fn merge(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, before| {
        let touch = next.start <= before.end;
        if touch {
            before.end = before.end.max(next.end);
        }
        touch
    });
}
