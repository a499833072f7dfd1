//! Where the kernel's image is in physical memory, by the kernel's own page tables.
//!
//! A program can fill its memory with anything, so a search needs memory that no program can have.
//! On x86-64 that is the first MiB: the kernel reserves all of it at boot (`reserve_real_mode`),
//! and keeps a top-level page table there for processors that start in real mode
//! (`trampoline_pgd`), which has all mappings of the kernel. They lead to the image.
//!
//! The image is mapped at [`IMAGE`], and some of it is freed at boot: init code and data, gaps
//! between sections, what is left behind its end. The kernel makes such memory writable, or unmaps
//! it, before a program can get it (`free_init_pages`). So what is mapped read-only is the kernel's
//! for as long as it runs.

use std::ops::Range;

use crate::{PhysicalMemory, Presence};

/// Where the first MiB has memory: behind it are the screen's, whose content programs choose, and
/// firmware.
const LOW: Range<u64> = 0..0xa_0000;
const PAGE: u64 = 4096;
const WORDS: usize = 512;
/// Bytes that an entry of the table above the last one stands for.
const LARGE: u64 = 2 << 20;

/// Of a page-table entry.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const IS_LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The indices of the image's 1 GiB, from 0xffffffff80000000 on: in the top-level table (and in the
/// one below it where there are five levels), and in the table of 1 GiB each.
const TOP: usize = 511;
const IMAGE: usize = 510;

/// The kernel's image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelImage {
    /// What it maps read-only, in order, without overlaps.
    pub(super) read_only: Vec<Range<u64>>,
    /// What else it maps: all data, and what was freed at boot.
    pub(super) writable: Vec<Range<u64>>,
    /// The page tables are those of a kernel that ran before, or of this one: which of them is not
    /// known. Those of before may lie in memory that is a program's now.
    pub(super) is_ambiguous: bool,
}

impl KernelImage {
    /// The image of the kernel of an x86-64 machine. None: nothing in the first MiB leads to one.
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

    /// The image as a top-level page table at this address maps it, if there is one.
    fn of(memory: &impl PhysicalMemory, top: u64) -> Option<Self> {
        // Most pages are none: their last word says so.
        let mut word = [0; 8];
        if memory.read(top + 8 * TOP as u64, &mut word) != Presence::Whole {
            return None;
        }
        let mut flags = WRITABLE | USER;
        let mut gigabytes = table_at(memory, u64::from_le_bytes(word), &mut flags)?;
        if gigabytes[IMAGE] & PRESENT == 0 {
            // Five levels.
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
        // What is mapped writable at one place is not read-only.
        let writable =
            |range: &Range<u64>| image.writable.iter().any(|other| overlap(range, other));
        image.read_only.retain(|range| !writable(range));
        has_text.then_some(image)
    }
}

/// The table that an entry leads to, if it is there. Takes the flags that the entry does not have
/// off the others.
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

/// Sorts ranges, and makes one of those that overlap or touch.
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
