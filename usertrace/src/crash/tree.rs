//! Trees of pages: from the pages of an area to their physical addresses.

use std::collections::HashSet;

use usertrace_sys::crash::{LTT_CRASH_ADDRESS, LTT_CRASH_LOST, LTT_CRASH_PRESENT, LttCrashTree};
use usertrace_sys::uapi::LTT_LOST_WORD;

use super::{PhysicalMemory, Presence};
use crate::ring::{Positions, RingMemory};

/// Page sizes that a kernel can have.
pub(super) const PAGE_SIZES: std::ops::RangeInclusive<u32> = 4096..=65536;
/// Bits of a page's number that a tree can look at: more than there is physical memory.
const MAX_BITS: u32 = 52;

/// A tree that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// No page has this size.
    #[error("{0} is no size of a page")]
    PageSize(u32),
    /// It has no level, or too many.
    #[error("a tree of depth {0}")]
    Depth(u32),
    /// It says that it stands for more pages than its levels can.
    #[error("{pages} pages in a tree of depth {depth}")]
    Pages {
        /// How many.
        pages: u64,
        /// Its depth.
        depth: u32,
    },
}

/// Where a page of an area is.
enum Page {
    At(u64),
    NeverWritten,
    /// There was no memory for what was written.
    Lost,
    /// The tables that lead to it are not in the dump.
    Unknown,
}

/// An area of a process's buffers, read through its tree of pages.
#[derive(Debug)]
pub struct PageTree<'a, M> {
    memory: &'a M,
    root: u64,
    pages: u64,
    depth: u32,
    page_bits: u32,
    /// The table that was read last, of each level, and its address.
    tables: Vec<Option<(u64, Vec<u8>)>>,
    /// Pages that should be in the dump, and are not.
    missing: HashSet<u64>,
}

impl<'a, M: PhysicalMemory> PageTree<'a, M> {
    /// A tree in `memory`.
    ///
    /// # Errors
    /// When no tree of a kernel is so.
    pub fn new(memory: &'a M, tree: &LttCrashTree, page_size: u32) -> Result<Self, TreeError> {
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Err(TreeError::PageSize(page_size));
        }
        let page_bits = page_size.ilog2();
        let bits = (page_bits - 3).saturating_mul(tree.depth);
        if bits == 0 || bits > MAX_BITS {
            return Err(TreeError::Depth(tree.depth));
        }
        if tree.pages > 1 << bits {
            return Err(TreeError::Pages {
                pages: tree.pages,
                depth: tree.depth,
            });
        }
        Ok(Self {
            memory,
            root: tree.root,
            pages: tree.pages,
            depth: tree.depth,
            page_bits,
            tables: (0..tree.depth).map(|_| None).collect(),
            missing: HashSet::new(),
        })
    }

    /// Length of the area.
    #[must_use]
    pub fn len(&self) -> u64 {
        // At most 2^52 pages of at most 2^16 bytes; such a tree only fits where it is this far from overflow.
        self.pages.saturating_mul(1 << self.page_bits)
    }

    /// Is the area empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Pages that were read, should be in the dump, and are not.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing.len() as u64
    }

    /// Copies bytes of the area; zeros where there is nothing, and `LTT_LOST_WORD` where there was no memory for what was
    /// written.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        let page_size = 1u64 << self.page_bits;
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.saturating_add(done as u64);
            let within = at % page_size;
            let len = (buffer.len() - done).min((page_size - within) as usize);
            let piece = &mut buffer[done..done + len];
            let page = at >> self.page_bits;
            match self.find(page) {
                Page::NeverWritten => piece.fill(0),
                Page::Lost => {
                    let word = LTT_LOST_WORD.to_ne_bytes();
                    for (byte, lost) in piece
                        .iter_mut()
                        .zip(word.iter().cycle().skip(at as usize % 8))
                    {
                        *byte = *lost;
                    }
                }
                Page::At(address) => {
                    // Zeros may have been left out of a dump; that a page with a header is not zeros, its reader sees.
                    if self.memory.read(address.saturating_add(within), piece) == Presence::Missing
                    {
                        self.missing.insert(page);
                    }
                }
                Page::Unknown => {
                    piece.fill(0);
                    self.missing.insert(page);
                }
            }
            done += len;
        }
    }

    /// The part of the area from `offset` on, as a ring whose process left it at `positions`.
    pub fn ring(&mut self, offset: u64, positions: Positions) -> impl RingMemory {
        Ring {
            tree: self,
            offset,
            positions,
        }
    }

    fn find(&mut self, page: u64) -> Page {
        if page >= self.pages {
            return Page::NeverWritten;
        }
        let word_bits = self.page_bits - 3;
        let mut word = self.root;
        for level in (0..self.depth).rev() {
            if word & LTT_CRASH_PRESENT == 0 {
                return Page::NeverWritten;
            }
            let index = page >> (word_bits * level) & ((1 << word_bits) - 1);
            match self.table_word(level, word & LTT_CRASH_ADDRESS, index as usize) {
                Some(next) => word = next,
                None => return Page::Unknown,
            }
        }
        if word & LTT_CRASH_PRESENT != 0 {
            Page::At(word & LTT_CRASH_ADDRESS)
        } else if word & LTT_CRASH_LOST != 0 {
            Page::Lost
        } else {
            Page::NeverWritten
        }
    }

    /// A word of a table. None: it is not in the dump.
    fn table_word(&mut self, level: u32, address: u64, index: usize) -> Option<u64> {
        let cached = &mut self.tables[level as usize];
        if cached.as_ref().is_none_or(|(at, _)| *at != address) {
            let mut table = vec![0; 1 << self.page_bits];
            let presence = self.memory.read(address, &mut table);
            *cached = (presence != Presence::Missing).then_some((address, table));
        }
        let (_, table) = cached.as_ref()?;
        let bytes = table.get(index * 8..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }
}

struct Ring<'t, 'a, M> {
    tree: &'t mut PageTree<'a, M>,
    offset: u64,
    positions: Positions,
}

impl<M: PhysicalMemory> RingMemory for Ring<'_, '_, M> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        self.tree.read(self.offset.saturating_add(offset), buffer);
    }

    fn load(&mut self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn positions(&mut self) -> Positions {
        self.positions
    }
}
