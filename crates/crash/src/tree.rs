//! Page trees: map the pages of an area to their physical addresses.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};

use usertrace_ring::{Positions, RingMemory};
use usertrace_sys::crash::{LTT_CRASH_ADDRESS, LTT_CRASH_LOST, LTT_CRASH_PRESENT, LttCrashTree};
use usertrace_sys::uapi::LTT_LOST_WORD;

use crate::{PhysicalMemory, Presence};

/// Page sizes that a kernel can have.
pub(super) const PAGE_SIZES: std::ops::RangeInclusive<u32> = 4096..=65536;
/// Maximum number of bits of a page number: more than any physical memory needs.
const MAX_BITS: u32 = 52;

/// Why a page tree is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The page size is invalid.
    #[error("{0} is no size of a page")]
    PageSize(u32),
    /// The depth is invalid.
    #[error("a tree of depth {0}")]
    Depth(u32),
    /// The tree claims more pages than its depth allows.
    #[error("{pages} pages in a tree of depth {depth}")]
    Pages {
        /// Number of pages.
        pages: u64,
        /// Its depth.
        depth: u32,
    },
}

/// The tree and position of each page. In a valid dump, each page has one position in one area.
/// Damaged trees that reuse pages could make the output larger than the dump.
#[derive(Debug, Default)]
pub struct PageOwners {
    trees: Cell<u32>,
    /// By the physical address of the first page: runs of pages that are contiguous in memory and
    /// in their tree.
    runs: RefCell<BTreeMap<u64, Run>>,
}

#[derive(Debug)]
struct Run {
    tree: u32,
    /// Number of the first page in the tree.
    page: u64,
    /// Length in bytes.
    len: u64,
}

impl PageOwners {
    fn new_tree(&self) -> u32 {
        self.trees.set(self.trees.get() + 1);
        self.trees.get()
    }

    /// Whether the page has this position and no other. Claims the page if it is new.
    fn has(&self, address: u64, tree: u32, page: u64, page_bits: u32) -> bool {
        let page_size = 1 << page_bits;
        let mut runs = self.runs.borrow_mut();
        if let Some((start, run)) = runs.range_mut(..=address).next_back() {
            let behind = address - start;
            let is_next = run.tree == tree
                && behind.is_multiple_of(page_size)
                && run.page.checked_add(behind >> page_bits) == Some(page);
            if behind < run.len {
                return is_next;
            }
            if behind == run.len && is_next {
                run.len += page_size;
                return true;
            }
        }
        let len = page_size;
        runs.insert(address, Run { tree, page, len });
        true
    }
}

/// Maximum number of pages to remember for each kind of problem: a damaged tree can have any
/// number.
const MAX_REPORTED: usize = 1 << 20;

fn remember(pages: &mut HashSet<u64>, page: u64) {
    if pages.len() < MAX_REPORTED {
        pages.insert(page);
    }
}

/// The location of a page of an area.
enum PageLocation {
    At(u64),
    /// The page already has another position.
    Duplicate,
    NeverWritten,
    /// A table on the path was excluded from the dump.
    LeftOut,
    /// The kernel had no memory for the page.
    Lost,
    /// A table on the path is missing in the dump.
    Unknown,
}

/// An area of a process's buffers, read through its page tree.
#[derive(Debug)]
pub struct PageTree<'a, M> {
    memory: &'a M,
    owners: &'a PageOwners,
    number: u32,
    root: u64,
    pages: u64,
    depth: u32,
    page_bits: u32,
    /// For each level, the table that was read last, with its address.
    tables: Vec<Option<(u64, Vec<u8>)>>,
    /// Pages that the dump should have, but lacks.
    missing: HashSet<u64>,
    /// Pages and tables that were excluded from the dump, because they were zeros or unwanted.
    left_out: HashSet<u64>,
    /// Pages that also have another position.
    duplicates: HashSet<u64>,
}

impl<'a, M: PhysicalMemory> PageTree<'a, M> {
    /// A tree in `memory`.
    ///
    /// # Errors
    /// If the tree is invalid.
    pub fn new(
        memory: &'a M,
        owners: &'a PageOwners,
        tree: &LttCrashTree,
        page_size: u32,
    ) -> Result<Self, TreeError> {
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
            owners,
            number: owners.new_tree(),
            root: tree.root,
            pages: tree.pages,
            depth: tree.depth,
            page_bits,
            tables: (0..tree.depth).map(|_| None).collect(),
            missing: HashSet::new(),
            left_out: HashSet::new(),
            duplicates: HashSet::new(),
        })
    }

    /// Length of the area in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        // Only a forged tree overflows: `new` allows 2^52 pages, of up to 2^16 bytes.
        self.pages.saturating_mul(1 << self.page_bits)
    }

    /// Whether the area is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Number of requested pages that the dump should have, but lacks.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing.len() as u64
    }

    /// Number of requested pages, and of tables on their paths, that were excluded from the dump.
    /// They count as zeros, which they may have been.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// Number of requested pages that also have another position. They count as zeros.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates.len() as u64
    }

    /// Whether the page at this offset was requested, and was excluded from the dump.
    #[must_use]
    pub fn is_left_out(&mut self, offset: u64) -> bool {
        match self.find(offset >> self.page_bits) {
            PageLocation::At(address) => self.left_out.contains(&address),
            PageLocation::LeftOut => true,
            PageLocation::NeverWritten
            | PageLocation::Lost
            | PageLocation::Unknown
            | PageLocation::Duplicate => false,
        }
    }

    /// Whether the page at this offset was requested, and is missing in the dump.
    #[must_use]
    pub fn is_missing(&self, offset: u64) -> bool {
        self.missing.contains(&(offset >> self.page_bits))
    }

    /// Whether the page at this offset was certainly never written.
    #[must_use]
    pub fn is_never_written(&mut self, offset: u64) -> bool {
        matches!(
            self.find(offset >> self.page_bits),
            PageLocation::NeverWritten
        )
    }

    /// Copies bytes of the area. Absent bytes are zeros; bytes for which the kernel had no memory
    /// are `LTT_LOST_WORD`.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) {
        let page_size = 1u64 << self.page_bits;
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.saturating_add(done as u64);
            let within = at % page_size;
            let page = at >> self.page_bits;
            let found = self.find(page);
            let rest = buffer.len() - done;
            let len = rest.min((page_size - within) as usize);
            if let PageLocation::At(address) = found {
                // Read physically contiguous pages at once, if the dump has all of them.
                let run = self.run(page, address, within.saturating_add(rest as u64));
                let all = rest.min((run - within) as usize);
                let whole = &mut buffer[done..done + all];
                if all > len
                    && self.memory.read(address.saturating_add(within), whole) == Presence::Whole
                {
                    done += all;
                    continue;
                }
            }
            let piece = &mut buffer[done..done + len];
            match found {
                PageLocation::NeverWritten | PageLocation::LeftOut => piece.fill(0),
                PageLocation::Lost => {
                    let word = LTT_LOST_WORD.to_ne_bytes();
                    for (byte, lost) in piece
                        .iter_mut()
                        .zip(word.iter().cycle().skip(at as usize % 8))
                    {
                        *byte = *lost;
                    }
                }
                PageLocation::At(address) => {
                    // The page may have been excluded because it was zeros. The reader notices if
                    // it had a header.
                    match self.memory.read(address.saturating_add(within), piece) {
                        Presence::Whole => {}
                        Presence::Excluded => remember(&mut self.left_out, address),
                        Presence::Missing => remember(&mut self.missing, page),
                    }
                }
                PageLocation::Unknown => {
                    piece.fill(0);
                    remember(&mut self.missing, page);
                }
                PageLocation::Duplicate => {
                    piece.fill(0);
                    remember(&mut self.duplicates, page);
                }
            }
            done += len;
        }
    }

    /// The number of physically contiguous bytes from the start of a page, which is at `address`.
    /// Stops at the first page that reaches `wanted`.
    fn run(&mut self, page: u64, address: u64, wanted: u64) -> u64 {
        let page_size = 1u64 << self.page_bits;
        let mut len = page_size;
        let mut next = page;
        while len < wanted {
            next += 1;
            match self.find(next) {
                PageLocation::At(at) if Some(at) == address.checked_add(len) => len += page_size,
                _ => break,
            }
        }
        len
    }

    /// The ring at `offset`, which its process left at `positions`.
    pub fn ring(&mut self, offset: u64, positions: Positions) -> impl RingMemory {
        TreeRing {
            tree: self,
            offset,
            positions,
        }
    }

    fn find(&mut self, page: u64) -> PageLocation {
        if page >= self.pages {
            return PageLocation::NeverWritten;
        }
        let word_bits = self.page_bits - 3;
        let mut word = self.root;
        for level in (0..self.depth).rev() {
            if word & LTT_CRASH_PRESENT == 0 {
                return PageLocation::NeverWritten;
            }
            let index = page >> (word_bits * level) & ((1 << word_bits) - 1);
            match self.table_word(level, word & LTT_CRASH_ADDRESS, index as usize) {
                Some(_) if self.left_out.contains(&(word & LTT_CRASH_ADDRESS)) => {
                    return PageLocation::LeftOut;
                }
                Some(next) => word = next,
                None => return PageLocation::Unknown,
            }
        }
        if word & LTT_CRASH_PRESENT != 0 {
            let address = word & LTT_CRASH_ADDRESS;
            match self.owners.has(address, self.number, page, self.page_bits) {
                true => PageLocation::At(address),
                false => PageLocation::Duplicate,
            }
        } else if word & LTT_CRASH_LOST != 0 {
            PageLocation::Lost
        } else {
            PageLocation::NeverWritten
        }
    }

    /// Reads a word of a table. `None` if the dump lacks the table.
    fn table_word(&mut self, level: u32, address: u64, index: usize) -> Option<u64> {
        let cached = &mut self.tables[level as usize];
        if cached.as_ref().is_none_or(|(at, _)| *at != address) {
            let mut table = vec![0; 1 << self.page_bits];
            let presence = self.memory.read(address, &mut table);
            if presence == Presence::Excluded {
                remember(&mut self.left_out, address);
            }
            *cached = (presence != Presence::Missing).then_some((address, table));
        }
        let (_, table) = cached.as_ref()?;
        let bytes = table.get(index * 8..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }
}

struct TreeRing<'t, 'a, M> {
    tree: &'t mut PageTree<'a, M>,
    offset: u64,
    positions: Positions,
}

impl<M: PhysicalMemory> RingMemory for TreeRing<'_, '_, M> {
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
